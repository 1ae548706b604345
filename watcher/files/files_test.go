package files

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"fairway/translator/model"
	"fairway/watcher"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	serviceYAML = `apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  ports: [{port: 80}]
`
	sliceYAML = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.0.0.1]}]
`
	ingressYAML = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  defaultBackend: {service: {name: web, port: {number: 80}}}
`
)

var (
	webService = model.Ref{Kind: model.Service, Namespace: "default", Name: "web"}
	webIngress = model.Ref{Kind: model.Ingress, Namespace: "default", Name: "web"}
)

// rig is a Watcher on a folder.
type rig struct {
	t     *testing.T
	dir   string
	queue *watcher.Queue
	w     *Watcher
	seen  map[string]bool

	mu       sync.Mutex
	problems []string // "file: problem" or "file: ok"
}

// start runs a Watcher on dir until the test ends.
func start(t *testing.T, dir string) *rig {
	t.Helper()
	r := &rig{t: t, dir: dir, queue: watcher.NewQueue(time.Millisecond, time.Millisecond), seen: map[string]bool{}}
	r.w = New(Options{Dir: dir, IngressClass: "fairway", ControllerClass: "c", Queue: r.queue, OnProblem: r.problem})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

func (r *rig) problem(path string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := "ok"
	if err != nil {
		text = err.Error()
	}
	r.problems = append(r.problems, filepath.Base(path)+": "+text)
}

// expectProblems waits until exactly these were reported.
func (r *rig) expectProblems(want ...string) {
	r.t.Helper()
	r.eventually("problems", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.problems) >= len(want)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.problems, want) {
		r.t.Fatalf("problems: got %q, want %q", r.problems, want)
	}
	r.problems = nil
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(8 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not in time: %s (problems %q)", what, r.problems)
		}
	}
}

// expect waits until each of want was dirty, and fails if something else was.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 8*time.Second)
	defer cancel()
	for slices.ContainsFunc(want, func(s string) bool { return !r.seen[s] }) {
		d, _, err := r.queue.Take(ctx)
		if err != nil {
			break
		}
		for ref := range d.Config {
			r.seen["config "+ref.String()] = true
		}
		for ref := range d.Endpoints {
			r.seen["endpoints "+ref.String()] = true
		}
	}
	got := slices.Sorted(maps.Keys(r.seen))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Fatalf("dirty: got %q, want %q", got, want)
	}
	clear(r.seen)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) write(name, content string) { write(r.t, filepath.Join(r.dir, name), content) }

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), serviceYAML+"---\n"+sliceYAML+"---\n# nothing\n---\n"+ingressYAML)
	write(t, filepath.Join(dir, ".hidden.yaml"), "garbage")
	write(t, filepath.Join(dir, "README.md"), "garbage")
	r := start(t, dir)
	r.expect("config IngressClass fairway", "config Ingress default/web", "config Service default/web", "endpoints Service default/web")
	src := r.w.Source()
	if s := src.Service(webService); s == nil || s.Spec.Ports[0].Protocol != "TCP" || s.Spec.Ports[0].TargetPort.IntVal != 80 || s.Spec.Type != "ClusterIP" {
		t.Errorf("service: got %v", s)
	}
	if s := src.Slices(webService); len(s) != 1 || *s[0].Ports[0].Name != "" || *s[0].Ports[0].Protocol != "TCP" {
		t.Errorf("slices: got %v", s)
	}
	if i := src.Ingress(webIngress); i == nil || i.Spec.IngressClassName == nil || *i.Spec.IngressClassName != "fairway" {
		t.Errorf("ingress: got %v", i)
	}
	if c := src.Class("fairway"); c == nil || c.Spec.Controller != "c" {
		t.Errorf("class: got %v", c)
	}

	r.write("a.yaml", serviceYAML+"---\n"+strings.Replace(sliceYAML, "10.0.0.1", "10.0.0.2", 1)+"---\n"+ingressYAML)
	r.expect("endpoints Service default/web")
	if got := src.Slices(webService)[0].Endpoints[0].Addresses[0]; got != "10.0.0.2" {
		t.Errorf("address: got %s, want 10.0.0.2", got)
	}
	r.write("sub/deep/b.json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","namespace":"x"},"data":{"k":"v"}} {"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x"}}`)
	r.expect("config ConfigMap x/m", "config Namespace x")
	if err := os.RemoveAll(filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	r.expect("config ConfigMap x/m", "config Namespace x")
	r.expectProblems()
}

// Editors save by renaming; so does whoever wants the change to be atomic.
func TestReplacedByRename(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "s.yaml"), sliceYAML)
	r := start(t, dir)
	r.expect("config IngressClass fairway", "endpoints Service default/web")
	for _, address := range []string{"10.0.0.2", "10.0.0.3"} {
		old, saved := filepath.Join(dir, "s.yaml"), filepath.Join(dir, "s.yaml~")
		if err := os.Rename(old, saved); err != nil {
			t.Fatal(err)
		}
		write(t, old, strings.Replace(sliceYAML, "10.0.0.1", address, 1))
		r.expect("endpoints Service default/web")
		if got := r.w.Source().Slices(webService)[0].Endpoints[0].Addresses[0]; got != address {
			t.Errorf("address: got %s, want %s", got, address)
		}
	}
}

func TestBrokenFileKeepsItsLastGoodObjects(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), serviceYAML+"---\n"+sliceYAML)
	r := start(t, dir)
	r.expect("config IngressClass fairway", "config Service default/web", "endpoints Service default/web")

	bad := strings.Replace(sliceYAML, "addressType", "adressType", 1)
	r.write("a.yaml", strings.Replace(serviceYAML, "80", "81", 1)+"---\n"+bad)
	r.expect("config Service default/web")
	r.expectProblems(`a.yaml: document 2: EndpointSlice web-1: unknown field "adressType"`)
	if n := len(r.w.Source().Slices(webService)); n != 1 {
		t.Errorf("slices: got %d, want the one from before", n)
	}
	r.write("a.yaml", serviceYAML+"---\n"+bad)
	r.expect("config Service default/web")
	r.write("a.yaml", serviceYAML)
	r.expect("endpoints Service default/web")
	r.expectProblems("a.yaml: ok")
}

func TestSameObjectTwice(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "b.yaml"), strings.Replace(serviceYAML, "80", "81", 1))
	write(t, filepath.Join(dir, "a.yaml"), serviceYAML)
	r := start(t, dir)
	r.expect("config IngressClass fairway", "config Service default/web")
	r.expectProblems("b.yaml: Service default/web is ignored: it is defined in " + filepath.Join(dir, "a.yaml") + " already")
	if got := r.w.Source().Service(webService).Spec.Ports[0].Port; got != 80 {
		t.Errorf("port: got %d, want that of a.yaml", got)
	}
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	r.expect("config Service default/web")
	r.expectProblems("b.yaml: ok")
}

func TestFolderCreatedLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	r := start(t, dir)
	r.eventually("a problem with the folder", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.problems) == 1
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if d, _, err := r.queue.Take(ctx); err == nil {
		t.Errorf("took %v from a folder that does not exist", d)
	}
	begin := time.Now()
	r.write("a.yaml", serviceYAML)
	r.expect("config IngressClass fairway", "config Service default/web")
	if d := time.Since(begin); d > rescan-time.Second {
		t.Errorf("found after %v: by the periodic scan only", d)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	r.eventually("the folder is missed", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.problems) >= 3
	})
}

// A mounted ConfigMap is a folder of symlinks through "..data", which is
// replaced as a whole.
func TestMountedConfigMap(t *testing.T) {
	dir := t.TempDir()
	link := func(version, content string) {
		write(t, filepath.Join(dir, version, "s.yaml"), content)
		if err := os.Symlink(version, filepath.Join(dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	link("..1", sliceYAML)
	if err := os.Symlink(filepath.Join("..data", "s.yaml"), filepath.Join(dir, "s.yaml")); err != nil {
		t.Fatal(err)
	}
	r := start(t, dir)
	r.expect("config IngressClass fairway", "endpoints Service default/web")
	begin := time.Now()
	link("..2", strings.Replace(sliceYAML, "10.0.0.1", "10.0.0.2", 1))
	if err := os.RemoveAll(filepath.Join(dir, "..1")); err != nil {
		t.Fatal(err)
	}
	r.expect("endpoints Service default/web")
	if d := time.Since(begin); d > rescan-time.Second {
		t.Errorf("found after %v: by the periodic scan only", d)
	}
	r.expectProblems()
}

// Symlinks in a circle end the walk.
func TestSymlinkCircle(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "sub", "a.yaml"), serviceYAML)
	if err := os.Symlink(dir, filepath.Join(dir, "sub", "up")); err != nil {
		t.Fatal(err)
	}
	src, errs := Load(dir)
	if len(errs) > 0 || src.Service(webService) == nil {
		t.Errorf("got %v, %v", src.Service(webService), errs)
	}
}

// What cannot be looked at is reported, and hides neither its neighbours nor
// what it held before.
func TestUnreadableEntryHidesNothingElse(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir)
	r.write("a.yaml", sliceYAML)
	r.expect("config IngressClass fairway", "endpoints Service default/web")
	if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a.yaml", filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("s.yaml/x", filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	r.write("s.yaml", serviceYAML)
	r.expect("config Service default/web")
	r.eventually("both links are reported", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		text := strings.Join(r.problems, "\n")
		return strings.Contains(text, "a.yaml: open ") && strings.Contains(text, "b.yaml: open ")
	})
	if n := len(r.w.Source().Slices(webService)); n != 1 {
		t.Errorf("slices: got %d, want the one from before", n)
	}
}

// A folder that cannot be read keeps what it held.
func TestUnreadableFolderKeepsItsObjects(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, "sub")
	write(t, filepath.Join(sub, "a.yaml"), serviceYAML)
	problems := map[string]error{}
	s := newScanner(Options{OnProblem: func(path string, err error) { problems[path] = err }})
	s.scan(&tree{files: []string{filepath.Join(sub, "a.yaml")}})
	for range 3 {
		w, _ := s.scan(&tree{files: []string{sub}, closed: []string{sub}})
		if len(w.services) != 1 || problems[sub] == nil {
			t.Fatalf("got %d Services and the problems %v", len(w.services), problems)
		}
	}
	s.scan(&tree{})
	if w, _ := s.scan(&tree{}); len(w.services) != 0 || problems[sub] != nil {
		t.Errorf("after the folder is gone: %d Services and the problems %v", len(w.services), problems)
	}
}

// A file that is emptied for a moment, as editors do, loses nothing.
func TestEmptiedForAMoment(t *testing.T) {
	s := newScanner(Options{OnProblem: func(string, error) {}})
	path := filepath.Join(t.TempDir(), "a.yaml")
	for i, step := range []struct {
		content string
		present bool
		again   bool
	}{
		{serviceYAML, true, false}, {"", true, true}, {serviceYAML, true, false},
		{"", true, true}, {"", false, false}, {serviceYAML, true, false},
	} {
		write(t, path, step.content)
		w, again := s.scan(&tree{files: []string{path}})
		if (len(w.services) == 1) != step.present || again != step.again {
			t.Errorf("scan %d: got present %v, again %v; want %v, %v", i, len(w.services) == 1, again, step.present, step.again)
		}
	}
}

// Without OnProblem, problems are logged when they appear and when they go.
func TestProblemsAreLogged(t *testing.T) {
	var lines strings.Builder
	w := New(Options{Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	path := filepath.Join(w.o.Dir, "a.yaml")
	for _, content := range []string{"hello\n", "hello again\n", serviceYAML} {
		write(t, path, content)
		w.scanner.scan(&tree{files: []string{path}})
	}
	got := lines.String()
	if strings.Count(got, `level=WARN msg="manifest has a problem" file=`+path+` err="document 1: not a Kubernetes object"`) != 1 ||
		strings.Count(got, `level=INFO msg="manifest is good again" file=`+path) != 1 || strings.Count(got, "\n") != 2 {
		t.Errorf("log: %s", got)
	}
}
