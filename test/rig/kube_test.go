package rig

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func TestKube(t *testing.T) {
	k := StartKube(t, KubeOptions{AuditLog: true})
	t.Run("Apply", func(t *testing.T) { testApply(t, k) })
	t.Run("Users", func(t *testing.T) { testUsers(t, k) })
	t.Run("Proxy", func(t *testing.T) { testProxy(t, k) })
	t.Run("Fairway", func(t *testing.T) { testFairway(t, k) })
	t.Run("Restart", func(t *testing.T) { testRestart(t, k) })
}

func testApply(t *testing.T, k *Kube) {
	k.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n# nothing\n---\n"+
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\ndata: {k: v}\n")
	pair := SelfSigned(t, CertOptions{Hosts: []string{"a.example"}})
	k.ApplyObjects(t, Service("shop", "web"), Slice("shop", "web", "10.245.9.1"), TLSSecret("shop", "cert", pair))
	// A second time, changed: apply must not conflict with itself.
	k.ApplyObjects(t, Slice("shop", "web", "10.245.9.2", "10.245.9.3"))
	slice, err := k.Client.DiscoveryV1().EndpointSlices("shop").Get(context.Background(), "web-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(slice.Endpoints) != 2 || slice.Endpoints[0].Addresses[0] != "10.245.9.2" {
		t.Errorf("endpoints = %v", slice.Endpoints)
	}
	if err := k.TryApplyObjects(Slice("shop", "bad", "127.0.0.1")); err == nil {
		t.Error("the API server accepted a loopback endpoint")
	}
	k.DeleteObjects(t, Slice("shop", "web"), Slice("shop", "never-there"))
	_, err = k.Client.DiscoveryV1().EndpointSlices("shop").Get(context.Background(), "web-1", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("after the deletion: %v", err)
	}
}

func testUsers(t *testing.T, k *Kube) {
	user := clientFrom(t, k.FairwayKubeconfig)
	account := clientFrom(t, k.ServiceAccountKubeconfig(t, "fairway-system", "fairway"))
	for name, client := range map[string]kubernetes.Interface{"user": user, "account": account} {
		_, err := client.CoreV1().Secrets("default").List(context.Background(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s without rights: %v", name, err)
		}
		if err != nil && !strings.Contains(err.Error(), "fairway") {
			t.Errorf("%s is someone else: %v", name, err)
		}
	}
	k.Apply(t, "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: reader}\n"+
		"rules: [{apiGroups: [''], resources: [services], verbs: [list]}]\n")
	k.Bind(t, "reader")
	Eventually(t, 5*time.Second, func() error {
		_, err := user.CoreV1().Services("default").List(context.Background(), metav1.ListOptions{})
		return err
	}, "the bound role gives rights")
}

func testRestart(t *testing.T, k *Kube) {
	get := func() error {
		_, err := k.Client.CoreV1().ConfigMaps("shop").Get(context.Background(), "a", metav1.GetOptions{})
		return err
	}
	k.KillAPIServer()
	if get() == nil {
		t.Error("the API server answers after it was killed")
	}
	k.StartAPIServer(t)
	if err := get(); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	k.StopAPIServer()
	k.StartAPIServer(t)
	if err := get(); err != nil {
		t.Errorf("after the second restart: %v", err)
	}
}

func clientFrom(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
