package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/keyutil"
)

const (
	adminToken   = "admin-token"
	fairwayToken = "fairway-token"

	// FairwayUser is the user of Kube.FairwayKubeconfig. It has no rights
	// until Bind gives it some.
	FairwayUser = "fairway"

	apiServerTimeout = 90 * time.Second
)

// KubeOptions configure a Kubernetes API.
type KubeOptions struct {
	APIServerFlags []string // appended, so they win
	AuditLog       bool     // write every request's metadata to Kube.AuditLog
}

// Kube is a real kube-apiserver with its etcd and nothing else: no controller
// acts on what is created, so tests decide about every EndpointSlice. RBAC is
// on, namespaces are never finalised.
type Kube struct {
	Config            *rest.Config // as admin, without client-side throttling
	Client            kubernetes.Interface
	Dynamic           dynamic.Interface
	Kubeconfig        string // file, as admin
	FairwayKubeconfig string // file, as FairwayUser
	AuditLog          string // file, if asked for
	CA                *Authority

	mapper *restmapper.DeferredDiscoveryRESTMapper
	dir    string
	etcd   *process
	api    *process
}

// StartKube starts etcd and kube-apiserver, which takes about seven seconds.
func StartKube(t T, o KubeOptions) *Kube {
	t.Helper()
	k := &Kube{dir: t.TempDir(), CA: NewAuthority(t, "kube")}
	etcdURL := k.prepareEtcd(t)
	k.prepareAPIServer(t, etcdURL, o)
	if err := k.etcd.start(); err != nil {
		t.Fatalf("%v", err)
	}
	k.connect(t)
	k.StartAPIServer(t)
	return k
}

// prepareEtcd returns the URL at which etcd will listen.
func (k *Kube) prepareEtcd(t T) string {
	t.Helper()
	client, peer := "http://"+Loopback(t), "http://"+Loopback(t)
	k.etcd = newProcess(t, "etcd", Program(t, "etcd"),
		"--name=rig", "--data-dir="+filepath.Join(k.dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=rig="+peer)
	return client
}

func (k *Kube) prepareAPIServer(t T, etcdURL string, o KubeOptions) {
	t.Helper()
	port := Port(t)
	serving := k.CA.Issue(t, CertOptions{Hosts: []string{"127.0.0.1", "localhost", "kubernetes.default.svc"}})
	k.write(t, "serving.crt", serving.CertPEM)
	k.write(t, "serving.key", serving.KeyPEM)
	accounts, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		t.Fatalf("generate key: %v", err)
	}
	k.write(t, "accounts.key", accounts)
	k.write(t, "tokens.csv", []byte(adminToken+",admin,admin,system:masters\n"+fairwayToken+","+FairwayUser+","+FairwayUser+"\n"))
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		// Loopback cannot be advertised, and there is no other device.
		"--advertise-address=10.245.0.1", "--endpoint-reconciler-type=none",
		"--cert-dir=" + k.dir, "--tls-cert-file=" + k.file("serving.crt"), "--tls-private-key-file=" + k.file("serving.key"),
		"--token-auth-file=" + k.file("tokens.csv"), "--authorization-mode=RBAC,Node",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + k.file("accounts.key"), "--service-account-signing-key-file=" + k.file("accounts.key"),
		"--service-cluster-ip-range=10.96.0.0/16",
		// It waits for a controller that does not run here.
		"--disable-admission-plugins=ServiceAccount",
	}
	if o.AuditLog {
		args = append(args, k.auditFlags(t)...)
	}
	k.api = newProcess(t, "kube-apiserver", Program(t, "kube-apiserver"), append(args, o.APIServerFlags...)...)
	k.Config = k.config(fmt.Sprintf("https://127.0.0.1:%d", port), adminToken)
	k.Kubeconfig = k.writeKubeconfig(t, "admin", k.Config)
	k.FairwayKubeconfig = k.writeKubeconfig(t, FairwayUser, k.config(k.Config.Host, fairwayToken))
}

func (k *Kube) auditFlags(t T) []string {
	t.Helper()
	policy := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"
	k.write(t, "audit.yaml", []byte(policy))
	k.AuditLog = k.file("audit.log")
	return []string{"--audit-policy-file=" + k.file("audit.yaml"), "--audit-log-path=" + k.AuditLog}
}

// connect makes the admin's clients.
func (k *Kube) connect(t T) {
	t.Helper()
	var errs [2]error
	k.Client, errs[0] = kubernetes.NewForConfig(k.Config)
	k.Dynamic, errs[1] = dynamic.NewForConfig(k.Config)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatalf("kubernetes client: %v", err)
	}
	k.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(k.Client.Discovery()))
}

// StartAPIServer starts the API server, also again after StopAPIServer or
// KillAPIServer: at the same address and with the same objects.
func (k *Kube) StartAPIServer(t T) {
	t.Helper()
	if err := k.api.start(); err != nil {
		t.Fatalf("%v", err)
	}
	err := k.api.waitReady(apiServerTimeout, func() error {
		if err := k.etcd.alive(); err != nil {
			return err
		}
		return k.ready()
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// ready asks for the API server's own readiness and for what it creates in the
// background after that.
func (k *Kube) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	client := k.Client.Discovery().RESTClient()
	if err := client.Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	return client.Get().AbsPath("/api/v1/namespaces/default").Do(ctx).Error()
}

// StopAPIServer asks the API server to end and waits for it.
func (k *Kube) StopAPIServer() { k.api.stop(20 * time.Second) }

// KillAPIServer ends the API server at once, without a word to its clients.
func (k *Kube) KillAPIServer() { k.api.kill() }

// APIServerLog returns what the API server has logged.
func (k *Kube) APIServerLog() string { return k.api.log() }

func (k *Kube) file(name string) string { return filepath.Join(k.dir, name) }

func (k *Kube) write(t T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(k.file(name), content, 0o600); err != nil {
		t.Fatalf("%v", err)
	}
}

// config returns the configuration of a client that has a token.
func (k *Kube) config(host, token string) *rest.Config {
	return &rest.Config{
		Host:            host,
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: k.CA.CertPEM},
		QPS:             -1,
	}
}
