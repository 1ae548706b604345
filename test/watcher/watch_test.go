package watcher_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"fairway/test/rig"
	"fairway/translator/model"
	"fairway/watcher"
)

// The first Dirty names every object, and the source has them all by then.
func TestReadyMeansProcessed(t *testing.T) {
	ns := kube.Namespace(t, "ready")
	const n = 200
	var objects []runtime.Object
	for i := range n {
		name := fmt.Sprintf("s%03d", i)
		objects = append(objects, rig.Service(ns, name), rig.Slice(ns, name, fmt.Sprintf("10.245.7.%d", i+1)))
	}
	kube.ApplyObjects(t, objects...)
	r := start(t, kube.Config, watcher.Options{Namespaces: []string{ns}}).ready()
	config, endpoints := 0, 0
	for _, s := range r.seen() {
		switch {
		case strings.HasPrefix(s, "config Service "+ns+"/"):
			config++
		case strings.HasPrefix(s, "endpoints Service "+ns+"/"):
			endpoints++
		}
	}
	if config != n || endpoints != n {
		t.Errorf("dirty at first: %d Services and the endpoints of %d, want %d", config, endpoints, n)
	}
	for i := range n {
		name := fmt.Sprintf("s%03d", i)
		if r.src.Service(ref(model.Service, ns, name)) == nil || r.addresses(ns, name) != fmt.Sprintf("10.245.7.%d", i+1) {
			t.Errorf("%s is not complete", name)
		}
	}
	if p := r.w.Pending(); len(p) != 0 {
		t.Errorf("pending: %q", p)
	}
}

// Relabelling a slice or writing what is not read makes nothing dirty.
func TestUnreadChangesAreNotDirty(t *testing.T) {
	ns := kube.Namespace(t, "unread")
	kube.ApplyObjects(t, rig.Service(ns, "web"), rig.Slice(ns, "web", "10.245.7.1"), ingress(ns, "web", "x"))
	r := start(t, kube.Config, watcher.Options{Namespaces: []string{ns}}).ready()
	r.forget()
	slice := rig.Slice(ns, "web", "10.245.7.1")
	slice.Labels["team"], slice.Annotations = "blue", map[string]string{"a": "b"}
	slice.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: "p"}
	labelled := ingress(ns, "web", "x")
	labelled.Labels = map[string]string{"team": "blue"}
	kube.ApplyObjects(t, slice, labelled, rig.Service(ns, "marker"))
	r.expect(soon, "config Service unread/marker")
}

// smallest samples a number until stop is called, which returns the smallest.
func smallest(f func() int) (stop func() int) {
	var least atomic.Int64
	least.Store(int64(f()))
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				least.Store(min(least.Load(), int64(f())))
			}
		}
	}()
	return func() int { close(done); <-ended; return int(least.Load()) }
}

// After an outage in which the API server forgot its history (410 on watches
// and lists), what changed is dirty, what is gone is gone, and nothing was
// missing for a moment.
func TestRelistAfterLostHistory(t *testing.T) {
	ns := kube.Namespace(t, "relist")
	const n = 50
	for i := range n {
		kube.ApplyObjects(t, rig.Slice(ns, fmt.Sprintf("s%02d", i), fmt.Sprintf("10.245.7.%d", i+1)))
	}
	p, cfg := through(t, kube.Config)
	var gone atomic.Int32
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return expired{next, &gone} })
	r := start(t, cfg, watcher.Options{Namespaces: []string{ns}}).ready()
	present := func() int {
		count := 0
		for i := range n {
			if r.addresses(ns, fmt.Sprintf("s%02d", i)) != "" {
				count++
			}
		}
		return count
	}
	if got := present(); got != n {
		t.Fatalf("Services with endpoints: got %d, want %d", got, n)
	}
	r.forget()
	least := smallest(present)

	p.block(true)
	kube.ApplyObjects(t, rig.Slice(ns, "s00", "10.245.8.1"))
	if err := kube.Client.DiscoveryV1().EndpointSlices(ns).Delete(ctx, "s01-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kube.KillAPIServer()
	kube.StartAPIServer(t)
	kube.ApplyObjects(t, rig.Slice(ns, "s02", "10.245.8.2"))
	gone.Store(3)
	p.block(false)

	r.expect(soon, "endpoints Service relist/s00", "endpoints Service relist/s01", "endpoints Service relist/s02")
	if gone.Load() >= 0 {
		t.Errorf("%d answers of 410 are left", gone.Load())
	}
	if got := least(); got != n-1 {
		t.Errorf("least number of Services with endpoints: got %d, want %d", got, n-1)
	}
	if a, b := r.addresses(ns, "s00"), r.addresses(ns, "s02"); a != "10.245.8.1" || b != "10.245.8.2" {
		t.Errorf("addresses: got %s and %s", a, b)
	}
}

// The API server is killed and comes back: what was known stays, and what
// changes afterwards arrives within seconds.
func TestAPIServerRestarts(t *testing.T) {
	ns := kube.Namespace(t, "restart")
	kube.ApplyObjects(t, rig.Slice(ns, "web", "10.245.7.1"))
	r := start(t, kube.Config, watcher.Options{Namespaces: []string{ns}}).ready()
	r.forget()
	least := smallest(func() int { return len(r.addresses(ns, "web")) })
	kube.KillAPIServer()
	kube.StartAPIServer(t)
	kube.ApplyObjects(t, rig.Slice(ns, "web", "10.245.7.2"))
	r.expect(5*time.Second, "endpoints Service restart/web")
	if got := r.addresses(ns, "web"); got != "10.245.7.2" {
		t.Errorf("addresses: got %q", got)
	}
	if least() == 0 {
		t.Error("the endpoints were gone for a moment")
	}
}

// A start without an API server waits, and is ready soon after it is there.
func TestStartWithoutAPIServer(t *testing.T) {
	p, cfg := through(t, kube.Config)
	p.block(true)
	r := start(t, cfg, watcher.Options{})
	rig.Eventually(t, soon, func() error {
		if !strings.Contains(r.logs.String(), "api server unreachable") {
			return fmt.Errorf("log: %s", r.logs)
		}
		return nil
	}, "the outage is logged")
	if len(r.w.Pending()) == 0 || r.taken != 0 {
		t.Error("ready without an API server")
	}
	p.block(false)
	r.ready()
}

// A connection on which nothing arrives any more is found by pings. The times
// are shortened: by default they are 30 and 15 seconds.
func TestBlackHole(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
	ns := kube.Namespace(t, "hole")
	kube.ApplyObjects(t, rig.Slice(ns, "web", "10.245.7.1"))
	p, cfg := through(t, kube.Config)
	r := start(t, cfg, watcher.Options{Namespaces: []string{ns}}).ready()
	r.forget()
	before := p.accepted()
	p.hold(true)
	kube.ApplyObjects(t, rig.Slice(ns, "web", "10.245.7.2"))
	rig.Eventually(t, soon, func() error {
		if p.accepted() == before {
			return fmt.Errorf("still on %d connections", before)
		}
		return nil
	}, "the connection is given up")
	if got := r.addresses(ns, "web"); got != "10.245.7.1" {
		t.Errorf("addresses: got %q", got)
	}
	p.block(true) // what is stuck in the hole
	p.hold(false)
	p.block(false)
	r.expect(soon, "endpoints Service hole/web")
}

const (
	roles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: most}
rules:
- {apiGroups: [networking.k8s.io], resources: [ingresses, ingressclasses], verbs: [list, watch]}
- {apiGroups: [""], resources: [services], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
`
	secretRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: secrets}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [list, watch]}
`
)

// Without the right to read one kind nothing is ready. When a right is taken
// away later, what was known stays.
func TestForbiddenKind(t *testing.T) {
	ns := kube.Namespace(t, "forbidden")
	kube.Apply(t, roles+"---\n"+secretRole)
	kube.Bind(t, "most")
	kube.ApplyObjects(t, rig.TLSSecret(ns, "cert", rig.SelfSigned(t, rig.CertOptions{Hosts: []string{"a.example"}})))
	user, err := clientcmd.BuildConfigFromFlags("", kube.FairwayKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	p, cfg := through(t, user)
	r := start(t, cfg, watcher.Options{})
	rig.Eventually(t, soon, func() error {
		if p := r.w.Pending(); len(p) != 1 || !strings.HasPrefix(p[0], "Secret: ") || !strings.Contains(p[0], "forbidden") {
			return fmt.Errorf("pending: %q", p)
		}
		return nil
	}, "only Secrets are missing")
	if r.taken != 0 {
		t.Fatal("ready without the Secrets")
	}
	kube.Bind(t, "secrets")
	r.ready()
	if r.src.Secret(ref(model.Secret, ns, "cert")) == nil {
		t.Fatal("the Secret is missing")
	}

	if err := kube.Client.RbacV1().ClusterRoleBindings().Delete(ctx, "rig-fairway-secrets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	seen := len(r.logs.String())
	least := smallest(func() int {
		if r.src.Secret(ref(model.Secret, ns, "cert")) == nil {
			return 0
		}
		return 1
	})
	direct, err := kubernetes.NewForConfig(user)
	if err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, soon, func() error {
		if _, err := direct.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("list: %v", err)
		}
		return nil
	}, "the right is gone")
	p.cut()
	rig.Eventually(t, soon, func() error {
		if !strings.Contains(r.logs.String()[seen:], "forbidden") {
			return fmt.Errorf("log: %s", r.logs.String()[seen:])
		}
		return nil
	}, "the watch of Secrets is refused")
	r.forget()
	kube.ApplyObjects(t, rig.Service(ns, "web"))
	r.expect(soon, "config Service forbidden/web")
	if least() == 0 {
		t.Error("the Secret was gone for a moment")
	}
}

func opaque(namespace, name, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"auth": []byte(value)}}
}

func TestSecrets(t *testing.T) {
	ns := kube.Namespace(t, "secrets")
	pair := rig.SelfSigned(t, rig.CertOptions{Hosts: []string{"a.example"}})
	kube.ApplyObjects(t, rig.TLSSecret(ns, "cert", pair), opaque(ns, "auth", "1"), opaque(ns, "other", "1"))
	r := start(t, kube.Config, watcher.Options{Namespaces: []string{ns}}).ready()
	cert, auth, late := ref(model.Secret, ns, "cert"), ref(model.Secret, ns, "auth"), ref(model.Secret, ns, "late")
	if r.src.Secret(cert) == nil || r.src.Secret(auth) != nil {
		t.Fatalf("cert %v, auth %v", r.src.Secret(cert) != nil, r.src.Secret(auth) != nil)
	}
	r.expect(soon, "config Secret secrets/cert")
	r.w.Follow([]model.Ref{cert, auth, late})
	r.expect(soon, "config Secret secrets/auth")
	if s := r.src.Secret(auth); s == nil || string(s.Data["auth"]) != "1" || r.src.Secret(ref(model.Secret, ns, "other")) != nil {
		t.Fatalf("auth: got %v", s)
	}
	kube.ApplyObjects(t, opaque(ns, "auth", "2"), opaque(ns, "other", "2"), rig.TLSSecret(ns, "late", pair))
	r.expect(soon, "config Secret secrets/auth", "config Secret secrets/late")
	if s := r.src.Secret(auth); string(s.Data["auth"]) != "2" {
		t.Errorf("auth: got %s", s.Data["auth"])
	}
	r.w.Follow([]model.Ref{cert, auth, late}) // late is held by the standing informer now
	kube.DeleteObjects(t, opaque(ns, "auth", ""))
	rig.Eventually(t, soon, func() error {
		if r.src.Secret(auth) != nil || r.src.Secret(late) == nil || !slices.Contains(r.seen(), "config Secret secrets/auth") {
			return fmt.Errorf("auth %v, late %v, dirty %q", r.src.Secret(auth) != nil, r.src.Secret(late) != nil, r.seen())
		}
		return nil
	}, "auth is gone, and late is held by the standing informer")
	r.w.Follow(nil)
	r.forget()
	kube.ApplyObjects(t, opaque(ns, "auth", "3"), rig.Service(ns, "marker"))
	r.expect(soon, "config Service secrets/marker")
}

// Labels are added to and removed from a live Service and its slice.
func TestServiceSelector(t *testing.T) {
	ns := kube.Namespace(t, "selector")
	r := start(t, kube.Config, watcher.Options{Namespaces: []string{ns}, ServiceSelector: "first=1,second"}).ready()
	apply := func(labels map[string]string) {
		service, slice := rig.Service(ns, "web"), rig.Slice(ns, "web", "10.245.7.1")
		service.Labels = labels
		maps.Copy(slice.Labels, labels)
		kube.ApplyObjects(t, service, slice)
	}
	for i, step := range []struct {
		labels map[string]string
		there  bool
	}{
		{nil, false},
		{map[string]string{"first": "1"}, false},
		{map[string]string{"first": "1", "second": "o"}, true},
		{map[string]string{"first": "2", "second": "o"}, false},
		{map[string]string{"first": "1", "second": "p"}, true},
		{map[string]string{"first": "1"}, false},
	} {
		apply(step.labels)
		rig.Eventually(t, soon, func() error {
			service := r.src.Service(ref(model.Service, ns, "web")) != nil
			slice := r.addresses(ns, "web") != ""
			if service != step.there || slice != step.there {
				return fmt.Errorf("Service %v, slice %v, want %v", service, slice, step.there)
			}
			return nil
		}, fmt.Sprintf("step %d", i))
	}
}

func TestNamespaceList(t *testing.T) {
	a, b, c := kube.Namespace(t, "list-a"), kube.Namespace(t, "list-b"), kube.Namespace(t, "list-c")
	kube.ApplyObjects(t, rig.Service(a, "web"), rig.Service(c, "web"))
	r := start(t, kube.Config, watcher.Options{Namespaces: []string{a, b}}).ready()
	r.expect(soon, "config Service list-a/web")
	kube.ApplyObjects(t, rig.Service(b, "web"), rig.Slice(b, "web", "10.245.7.1"), rig.Slice(c, "web", "10.245.7.1"))
	r.expect(soon, "config Service list-b/web", "endpoints Service list-b/web")
	if r.src.Service(ref(model.Service, c, "web")) != nil || r.addresses(c, "web") != "" {
		t.Error("an object of another namespace is in the source")
	}
}

func label(t *testing.T, namespace, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"serve":%q}}}`, value)
	if _, err := kube.Client.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestNamespaceRelabelled(t *testing.T) {
	ns := kube.Namespace(t, "relabel")
	kube.ApplyObjects(t, ingress(ns, "web", "x"), rig.Slice(ns, "web", "10.245.7.1"))
	r := start(t, kube.Config, watcher.Options{NamespaceSelector: "serve=yes"}).ready()
	r.forget()
	all := []string{"config Ingress relabel/web", "config Namespace relabel", "endpoints Service relabel/web"}
	for _, value := range []string{"yes", "no", "yes", "no"} {
		label(t, ns, value)
		r.expect(5*time.Second, all...)
		if there := r.src.Ingress(ref(model.Ingress, ns, "web")) != nil; there != (value == "yes") {
			t.Errorf("serve=%s: Ingress in the source: %v", value, there)
		}
	}
	if r.addresses(ns, "web") != "" {
		t.Error("the endpoints are still in the source")
	}
	fresh := kube.Namespace(t, "relabel-new")
	label(t, fresh, "yes")
	kube.ApplyObjects(t, ingress(fresh, "web", "x"))
	rig.Eventually(t, soon, func() error {
		if r.src.Ingress(ref(model.Ingress, fresh, "web")) == nil {
			return fmt.Errorf("not there")
		}
		return nil
	}, "an Ingress in a namespace that is new")
}

// A token that is refused is read again from its file. A trailing line break in
// the file does no harm.
func TestTokenFileIsReadAgain(t *testing.T) {
	ns := kube.Namespace(t, "token")
	kube.Apply(t, roles+"---\n"+secretRole)
	kube.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: token-admin}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:serviceaccounts:token"}]
`)
	file := filepath.Join(t.TempDir(), "token")
	write := func(account string) {
		cfg, err := clientcmd.BuildConfigFromFlags("", kube.ServiceAccountKubeconfig(t, ns, account))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(cfg.BearerToken+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	cfg := rest.AnonymousClientConfig(kube.Config)
	cfg.BearerTokenFile = file
	p, cfg := through(t, cfg)
	r := start(t, cfg, watcher.Options{Namespaces: []string{ns}}).ready()
	write("second")
	if err := kube.Client.CoreV1().ServiceAccounts(ns).Delete(ctx, "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.cut()
	r.forget()
	kube.ApplyObjects(t, rig.Service(ns, "web"))
	r.expect(30*time.Second, "config Service token/web")
}
