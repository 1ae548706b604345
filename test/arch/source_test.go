package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the root of the checkout, seen from this package.
const root = "../.."

// source is one Go file of the module.
type source struct {
	path string // from the root
	file *ast.File
	set  *token.FileSet
}

func (s source) test() bool {
	return strings.HasSuffix(s.path, "_test.go") || strings.HasPrefix(s.path, "test/")
}

// pure reports whether the file belongs to the packages that have no clock and
// no chance in them.
func (s source) pure() bool {
	return !s.test() && (strings.HasPrefix(s.path, "translator/") || strings.HasPrefix(s.path, "envoy/"))
}

func (s source) translator() bool { return !s.test() && strings.HasPrefix(s.path, "translator/") }

// check looks at one file and reports through complain.
type check struct {
	name string
	look func(s source, complain func(ast.Node, string))
}

var checks = []check{
	{"the library's caches serve only as a yardstick in tests", func(s source, complain func(ast.Node, string)) {
		if s.test() {
			return
		}
		for _, name := range []string{"NewSnapshotCache", "NewSnapshotCacheWithHeartbeating", "NewLinearCache"} {
			onName(s, name, complain)
		}
	}},
	{"the translator has no templates, no scripts, no files and no network", func(s source, complain func(ast.Node, string)) {
		if s.translator() {
			onImport(s, complain, "text/template", "html/template", "os", "os/exec", "net/http",
				goControl+"/envoy/extensions/filters/http/lua/v3")
		}
	}},
	{"translator and envoy have no clock and no chance", func(s source, complain func(ast.Node, string)) {
		if !s.pure() {
			return
		}
		onImport(s, complain, "math/rand", "math/rand/v2", "crypto/rand")
		for _, name := range []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"} {
			onCall(s, "time", name, complain)
		}
	}},
	{"the translator starts no goroutine", func(s source, complain func(ast.Node, string)) {
		if s.translator() {
			visit(s, func(n ast.Node) {
				if g, ok := n.(*ast.GoStmt); ok {
					complain(g, "go statement")
				}
			})
		}
	}},
	{"no init functions, no standard logger", func(s source, complain func(ast.Node, string)) {
		if s.test() {
			return
		}
		onImport(s, complain, "log")
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				complain(f, "init function")
			}
		}
	}},
	{"no test is skipped", func(s source, complain func(ast.Node, string)) {
		for _, name := range []string{"Skip", "Skipf", "SkipNow"} {
			onCall(s, "t", name, complain)
			onCall(s, "b", name, complain)
		}
	}},
}

func TestSource(t *testing.T) {
	files := sources(t)
	for _, c := range checks {
		for _, s := range files {
			c.look(s, func(n ast.Node, what string) {
				t.Errorf("%s:%d: %s: %s", s.path, s.set.Position(n.Pos()).Line, what, c.name)
			})
		}
	}
}

// TestChecksComplain feeds each check a file that breaks it.
func TestChecksComplain(t *testing.T) {
	for i, c := range []struct{ path, text string }{
		{"xds/a.go", "package xds\nvar c = cache.NewSnapshotCache()"},
		{"translator/policy/a.go", "package policy\nimport _ \"text/template\""},
		{"envoy/a.go", "package envoy\nimport \"time\"\nvar n = time.Now()"},
		{"translator/a.go", "package translator\nfunc f() { go f() }"},
		{"watcher/a.go", "package watcher\nfunc init() {}"},
		{"watcher/a_test.go", "package watcher\nfunc f(t *testing.T) { t.Skip() }"},
	} {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, c.path, c.text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		complaints := 0
		checks[i].look(source{c.path, file, set}, func(ast.Node, string) { complaints++ })
		if complaints != 1 {
			t.Errorf("%s: %d complaints, want 1", checks[i].name, complaints)
		}
	}
}

// unfinished are the words that mark work left undone.
var unfinished = []string{"TO" + "DO", "FIX" + "ME", "XX" + "X:"}

func TestNothingUnfinished(t *testing.T) {
	walk(t, func(path string, entry fs.DirEntry) {
		if entry.IsDir() || !textFile(path) {
			return
		}
		content, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(content), "\n") {
			for _, word := range unfinished {
				if strings.Contains(line, word) {
					t.Errorf("%s:%d: %s", path, i+1, word)
				}
			}
		}
	})
}

func textFile(path string) bool {
	return filepath.Base(path) == "Makefile" || slices.Contains([]string{".go", ".md", ".yaml", ".yml", ".txtar", ".sh"}, filepath.Ext(path))
}

func TestFolderNames(t *testing.T) {
	vague := []string{"util", "utils", "common", "helper", "helpers", "internal", "pkg", "misc"}
	walk(t, func(path string, entry fs.DirEntry) {
		if entry.IsDir() && slices.Contains(vague, entry.Name()) {
			t.Errorf("%s: the name says nothing about the content", path)
		}
	})
}

// sources parses every Go file of the module.
func sources(t *testing.T) []source {
	t.Helper()
	var list []source
	walk(t, func(path string, entry fs.DirEntry) {
		if entry.IsDir() || filepath.Ext(path) != ".go" {
			return
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, filepath.Join(root, path), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, source{path, file, set})
	})
	if len(list) < 10 {
		t.Fatalf("found only %d Go files", len(list))
	}
	return list
}

// walk visits the checkout without hidden folders and what make builds.
func walk(t *testing.T, visit func(path string, entry fs.DirEntry)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path, err = filepath.Rel(root, path)
		if err != nil || path == "." {
			return err
		}
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".ci" || path == "bin") {
			return fs.SkipDir
		}
		visit(filepath.ToSlash(path), entry)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func visit(s source, f func(ast.Node)) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		f(n)
		return true
	})
}

func onImport(s source, complain func(ast.Node, string), paths ...string) {
	for _, i := range s.file.Imports {
		if path := strings.Trim(i.Path.Value, `"`); slices.Contains(paths, path) {
			complain(i, "import of "+path)
		}
	}
}

// onName finds a name, whatever it belongs to.
func onName(s source, name string, complain func(ast.Node, string)) {
	visit(s, func(n ast.Node) {
		if id, ok := n.(*ast.Ident); ok && id.Name == name {
			complain(id, name)
		}
	})
}

// onCall finds uses of x.name.
func onCall(s source, x, name string, complain func(ast.Node, string)) {
	visit(s, func(n ast.Node) {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok || selector.Sel.Name != name {
			return
		}
		if id, ok := selector.X.(*ast.Ident); ok && id.Name == x {
			complain(selector, x+"."+name)
		}
	})
}
