package files

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"fairway/translator/model"
	"fairway/watcher"
)

// settle is how long a folder must be quiet before it is read, and patience how
// long it may be restless. rescan is how often it is read in any case: network
// file systems do not tell about changes.
const (
	settle   = 20 * time.Millisecond
	patience = 250 * time.Millisecond
	rescan   = 5 * time.Second
)

// Names that Load uses, which are the defaults of the command line.
const (
	DefaultIngressClass    = "fairway"
	DefaultControllerClass = "fairway.sh/ingress-controller"
)

// Options configures a Watcher.
type Options struct {
	Dir             string
	IngressClass    string         // name of the class to add if no class is the controller's
	ControllerClass string         // spec.controller of this controller's classes
	Queue           *watcher.Queue // gets the keys of what changes
	Logger          *slog.Logger
	// OnProblem is called when a file, or the folder, cannot be used or is used
	// only in part: once for each new problem, and with nil when it is solved.
	// If it is nil, problems are logged.
	OnProblem func(path string, err error)
}

// Watcher keeps the objects of a folder of manifests.
type Watcher struct {
	o       Options
	log     *slog.Logger
	source  *source
	scanner *scanner // owned by Run
	folder  *file    // the state of Dir itself; owned by Run
	synced  bool     // owned by Run
}

// New prepares a Watcher. It does no I/O.
func New(o Options) *Watcher {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnProblem == nil {
		o.OnProblem = logProblem(o.Logger)
	}
	return &Watcher{o: o, log: o.Logger, source: newSource(newWorld()), scanner: newScanner(o), folder: &file{}}
}

func logProblem(log *slog.Logger) func(string, error) {
	return func(path string, err error) {
		if err == nil {
			log.Info("manifest is good again", "file", path)
			return
		}
		log.Warn("manifest has a problem", "file", path, "err", err)
	}
}

// Source gives the objects of the last scan.
func (w *Watcher) Source() model.Source { return w.source }

// Run reads the folder until ctx ends and then returns nil. It calls the
// Queue's Synced after the first scan. A folder that does not exist is waited
// for; one that vanishes later keeps its last objects.
func (w *Watcher) Run(ctx context.Context) error {
	n := newNotifier(w.log)
	defer n.close()
	ticks := time.NewTicker(rescan)
	defer ticks.Stop()
	for {
		var soon <-chan time.Time
		if w.scan(n) {
			soon = time.After(settle)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-soon:
		case <-ticks.C:
		case <-n.changes():
			n.settle(ctx)
		case err := <-n.errors():
			w.log.Debug("file events were lost", "err", err)
		}
	}
}

// scan reads the folder once and publishes what changed. It returns true if the
// next scan is due soon.
func (w *Watcher) scan(n *notifier) bool {
	t, err := walk(w.o.Dir)
	w.scanner.report(w.o.Dir, w.folder, err)
	if err != nil {
		return n.watch([]string{ancestor(w.o.Dir)})
	}
	again := n.watch(t.folders)
	now, unsettled := w.scanner.scan(t)
	w.publish(now)
	return again || unsettled
}

// publish replaces the world and marks as dirty what differs from the last one.
func (w *Watcher) publish(now *world) {
	config, endpoints := diff(w.source.now.Swap(now), now)
	w.o.Queue.Add(watcher.Config, config...)
	w.o.Queue.Add(watcher.Endpoints, endpoints...)
	if !w.synced {
		w.synced = true
		w.log.Info("manifests read", "folder", w.o.Dir, "files", len(w.scanner.files))
		w.o.Queue.Synced()
	}
}

// Load reads manifests once, with the default class names.
func Load(paths ...string) (model.Source, []error) {
	return Options{IngressClass: DefaultIngressClass, ControllerClass: DefaultControllerClass}.Load(paths...)
}

// Load reads files and folders once. The Source holds everything that could be
// read; each error names its file.
func (o Options) Load(paths ...string) (model.Source, []error) {
	var errs []error
	o.OnProblem = func(path string, err error) { errs = append(errs, fmt.Errorf("%s: %w", path, err)) }
	found := &tree{}
	for _, path := range paths {
		t, err := walk(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("reading manifests: %w", err))
			continue
		}
		found.files = append(found.files, t.files...)
	}
	w, _ := newScanner(o).scan(found)
	return newSource(w), errs
}
