package files

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tree is what a walk finds: the manifests in order of their names, and the
// folders whose changes may concern them.
type tree struct {
	files   []string
	folders []string
	closed  []string        // folders that could not be read: what they held last stays
	visited map[string]bool // target paths, since symlinks may form a circle
}

// walk finds the manifests at path, which is a file or a folder. Symlinks are
// followed. Names that begin with a dot are passed over: they are editors'
// files, repositories, and the parts of which a mounted ConfigMap is made.
func walk(path string) (*tree, error) {
	t := &tree{visited: map[string]bool{}}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		t.files = []string{path}
		return t, nil
	}
	if err := t.folder(path); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *tree) folder(dir string) error {
	target, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if t.visited[target] {
		return nil
	}
	t.visited[target] = true
	t.folders = append(t.folders, dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		t.entry(filepath.Join(dir, e.Name()), e)
	}
	return nil
}

// entry adds a file or descends into a folder. What vanished meanwhile, or is a
// link to nothing, is not there. What cannot be looked at hides nothing else: it
// is added as a file, and reading it says what is wrong.
func (t *tree) entry(path string, e os.DirEntry) {
	info, err := os.Stat(path)
	if err != nil {
		if !os.IsNotExist(err) && manifest(path) {
			t.files = append(t.files, path)
		}
		return
	}
	if e.Type()&os.ModeSymlink != 0 {
		if target, err := filepath.EvalSymlinks(path); err == nil {
			t.folders = append(t.folders, filepath.Dir(target))
		}
	}
	switch {
	case info.IsDir():
		if err := t.folder(path); err != nil && !os.IsNotExist(err) {
			t.files, t.closed = append(t.files, path), append(t.closed, path)
		}
	case info.Mode().IsRegular() && manifest(path):
		t.files = append(t.files, path)
	}
}

// hides reports whether a path is below a folder that could not be read.
func (t *tree) hides(path string) bool {
	return slices.ContainsFunc(t.closed, func(dir string) bool {
		return strings.HasPrefix(path, dir+string(filepath.Separator))
	})
}

// manifest reports whether the name is one of a manifest.
func manifest(path string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path))
}

// ancestor returns the nearest folder above path that exists.
func ancestor(path string) string {
	for {
		parent := filepath.Dir(path)
		if _, err := os.Stat(parent); err == nil || parent == path {
			return parent
		}
		path = parent
	}
}
