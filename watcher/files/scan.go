package files

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
)

// file is what is remembered of one manifest between scans.
type file struct {
	sum      [sha256.Size]byte // of the content that was last decoded
	objects  []object          // the last good ones
	broken   error             // why the last content, or part of it, was not taken
	missing  bool              // not found, or empty, at the last scan
	reported string            // the problem as last reported
}

// scanner reads manifests and remembers the good ones.
type scanner struct {
	options Options
	files   map[string]*file
}

func newScanner(o Options) *scanner { return &scanner{options: o, files: map[string]*file{}} }

// scan reads the files and returns the world that they make, and whether to
// look again soon: a file that has just vanished or become empty keeps its
// objects for one more scan, because that is how many editors begin to save.
func (s *scanner) scan(t *tree) (w *world, again bool) {
	present := map[string]bool{}
	for _, path := range t.files {
		present[path] = true
		again = s.read(path) || again
	}
	for path, f := range s.files {
		if present[path] || t.hides(path) {
			continue
		}
		if f.missing || len(f.objects) == 0 {
			s.report(path, f, nil)
			delete(s.files, path)
			continue
		}
		f.missing, again = true, true
	}
	return s.assemble(), again
}

// read decodes one file if it changed. It returns true if the file shall be
// looked at again soon.
func (s *scanner) read(path string) bool {
	f := s.files[path]
	if f == nil {
		f = &file{}
		s.files[path] = f
	}
	content, err := os.ReadFile(path)
	if (errors.Is(err, fs.ErrNotExist) || err == nil && len(content) == 0) && !f.missing && len(f.objects) > 0 {
		f.missing = true
		return true
	}
	f.missing = false
	if err != nil {
		f.broken, f.sum = err, [sha256.Size]byte{}
		return false
	}
	sum := sha256.Sum256(content)
	if sum == f.sum {
		return false
	}
	objects, errs := decode(path, content)
	if len(errs) > 0 {
		objects = keepGood(objects, f.objects)
	}
	f.sum, f.objects, f.broken = sum, objects, join(errs)
	return false
}

// keepGood adds to the objects of a broken file those that it had before and
// that are not among them.
func keepGood(now, before []object) []object {
	have := map[string]bool{}
	for _, o := range now {
		have[title(o)] = true
	}
	for _, o := range before {
		if !have[title(o)] {
			now = append(now, o)
		}
	}
	return now
}

// assemble puts the objects of all files together, in the order of the files'
// names, and reports what is wrong with each.
func (s *scanner) assemble() *world {
	w := newWorld()
	owner := map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(s.files)) {
		f := s.files[path]
		var problems []error
		if f.broken != nil {
			problems = append(problems, f.broken)
		}
		for _, o := range f.objects {
			if w.add(o) {
				owner[title(o)] = path
				continue
			}
			problems = append(problems, fmt.Errorf("%s is ignored: it is defined in %s already", title(o), owner[title(o)]))
		}
		s.report(path, f, join(problems))
	}
	s.options.addClass(w)
	return w
}

// report tells about a problem when it is new, and when it is gone.
func (s *scanner) report(path string, f *file, problem error) {
	text := ""
	if problem != nil {
		text = problem.Error()
	}
	if text == f.reported {
		return
	}
	f.reported = text
	s.options.OnProblem(path, problem)
}

// title names an object: "Ingress default/web".
func title(o object) string {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	return strings.TrimSpace(kind + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
}
