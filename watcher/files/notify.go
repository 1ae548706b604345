package files

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// notifier tells that something in the watched folders changed. Where the
// system cannot tell, it is silent, and the periodic scan has to do.
type notifier struct {
	fs  *fsnotify.Watcher // nil if there is none
	log *slog.Logger
}

func newNotifier(log *slog.Logger) *notifier {
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("file changes are found by rescanning only", "err", err)
	}
	return &notifier{fs: fs, log: log}
}

func (n *notifier) close() {
	if n.fs != nil {
		_ = n.fs.Close() // nothing is left to be done about it
	}
}

// changes yields an event when something changed.
func (n *notifier) changes() <-chan fsnotify.Event {
	if n.fs == nil {
		return nil
	}
	return n.fs.Events
}

// errors yields what the system could not tell, such as too many events.
func (n *notifier) errors() <-chan error {
	if n.fs == nil {
		return nil
	}
	return n.fs.Errors
}

// watch makes folders the watched ones. It returns true if some are new: what
// happened in them before now has to be looked for.
func (n *notifier) watch(folders []string) bool {
	if n.fs == nil {
		return false
	}
	before := n.fs.WatchList()
	folders = clean(folders)
	for _, dir := range before {
		if !slices.Contains(folders, dir) {
			_ = n.fs.Remove(dir) // it may have gone by itself
		}
	}
	added := false
	for _, dir := range folders {
		if slices.Contains(before, dir) {
			continue
		}
		if err := n.fs.Add(dir); err != nil {
			n.log.Debug("folder is not watched", "folder", dir, "err", err)
			continue
		}
		added = true
	}
	return added
}

// clean gives folders the form in which WatchList returns them.
func clean(folders []string) []string {
	out := make([]string, len(folders))
	for i, dir := range folders {
		out[i] = filepath.Clean(dir)
	}
	return out
}

// settle swallows events until the folders have been quiet for a moment.
func (n *notifier) settle(ctx context.Context) {
	quiet := time.NewTimer(settle)
	defer quiet.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.fs.Events:
			quiet.Reset(settle)
		case <-n.fs.Errors:
		case <-quiet.C:
			return
		case <-limit.C:
			return
		}
	}
}
