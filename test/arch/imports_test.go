package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	module    = "fairway"
	grpc      = "google.golang.org/grpc"
	clientGo  = "k8s.io/client-go"
	goControl = "github.com/envoyproxy/go-control-plane"
)

// rule is one row of the import table. Paths stand for themselves and all that
// is below them; "=path" is this package alone.
type rule struct {
	pkg string // of ours; the longest match counts
	may []string
	// never is what the package must not depend on, not even through others;
	// neverItself is what its own files must not import.
	never       []string
	neverItself []string
}

// table is the import table of the design. Envoy's protobuf packages import
// gRPC for services that nobody here calls, hence neverItself.
var table = []rule{
	{pkg: "envoy", never: []string{"k8s.io"}, neverItself: []string{grpc}},
	{pkg: "translator/model", never: []string{clientGo, goControl, grpc}},
	{pkg: "translator/policy", may: []string{"translator/model", "envoy"},
		never: []string{clientGo}, neverItself: []string{grpc}},
	{pkg: "translator", may: []string{"translator/model", "translator/policy", "envoy"},
		never: []string{clientGo, module + "/xds", module + "/watcher"}, neverItself: []string{grpc}},
	{pkg: "watcher", may: []string{"translator/model", "watcher"},
		never: []string{goControl, module + "/envoy", module + "/xds", "=" + module + "/translator"}},
	{pkg: "xds", may: []string{"envoy"},
		never: []string{"k8s.io", module + "/translator", module + "/watcher"}},
	{pkg: "cmd", may: []string{"cmd", "envoy", "translator", "watcher", "xds"}},
	{pkg: "manifests"},
	{pkg: "test", may: []string{"cmd", "envoy", "manifests", "test", "translator", "watcher", "xds"}},
}

// pack is what "go list" says about a package.
type pack struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func TestImports(t *testing.T) {
	packs := listPackages(t)
	if len(packs) < 5 {
		t.Fatalf("go list found only %d packages", len(packs))
	}
	for _, p := range packs {
		own := strings.TrimPrefix(p.ImportPath, module+"/")
		r, ok := ruleFor(own)
		if !ok {
			t.Errorf("%s is not in the import table", own)
			continue
		}
		for _, problem := range r.problems(p) {
			t.Errorf("%s %s", own, problem)
		}
	}
}

// problems returns what the package imports against the rule.
func (r rule) problems(p pack) []string {
	var list []string
	for _, path := range p.Imports {
		ours, isOurs := strings.CutPrefix(path, module+"/")
		if isOurs && !matchesAny(r.may, ours) {
			list = append(list, "imports "+path+", which the table does not allow")
		}
		if matchesAny(r.neverItself, path) {
			list = append(list, "imports "+path)
		}
	}
	for _, path := range p.Deps {
		if matchesAny(r.never, path) {
			list = append(list, "depends on "+path)
		}
	}
	return list
}

func ruleFor(own string) (rule, bool) {
	var best rule
	for _, r := range table {
		if matches(r.pkg, own) && len(r.pkg) > len(best.pkg) {
			best = r
		}
	}
	return best, best.pkg != ""
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}

func matches(pattern, path string) bool {
	if exact, ok := strings.CutPrefix(pattern, "="); ok {
		return path == exact
	}
	return path == pattern || strings.HasPrefix(path, pattern+"/")
}

// listPackages returns the packages of the module without their tests.
func listPackages(t *testing.T) []pack {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packs []pack
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pack
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packs
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		packs = append(packs, p)
	}
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		own  string
		p    pack
		want int
	}{
		{"envoy", pack{Imports: []string{"fmt", goControl + "/envoy/config/core/v3"}, Deps: []string{grpc, "fmt"}}, 0},
		{"envoy", pack{Imports: []string{grpc + "/codes"}}, 1},
		{"envoy", pack{Imports: []string{module + "/translator/model"}, Deps: []string{"k8s.io/api/core/v1"}}, 2},
		{"translator/model", pack{Deps: []string{"k8s.io/api/core/v1", "k8s.io/client-goat"}}, 0},
		{"translator/policy", pack{Imports: []string{module + "/translator"}}, 1},
		{"translator", pack{Imports: []string{module + "/translator/policy"}, Deps: []string{clientGo + "/rest"}}, 1},
		{"watcher/status", pack{Imports: []string{module + "/watcher"}, Deps: []string{module + "/translator/model"}}, 0},
		{"watcher/status", pack{Imports: []string{module + "/translator"}, Deps: []string{module + "/translator"}}, 2},
		{"xds", pack{Imports: []string{module + "/test/rig"}}, 1},
	} {
		r, ok := ruleFor(c.own)
		if got := r.problems(c.p); !ok || len(got) != c.want {
			t.Errorf("%s importing %v: %v, want %d problems", c.own, c.p, got, c.want)
		}
	}
	if _, ok := ruleFor("xdsx"); ok {
		t.Error("a package that is in no row got a rule")
	}
}
