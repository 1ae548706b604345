package status

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
)

// worker does one thing to keys, one after another, and repeats what failed
// with growing pauses.
type worker[K comparable] struct {
	queue   workqueue.TypedRateLimitingInterface[K]
	limiter flowcontrol.RateLimiter
	log     *slog.Logger
	failed  string // what to log when do fails
	do      func(context.Context, K) error
	trouble string // the kind of the last failure; owned by run
}

// newWorker returns a worker that does at most perSecond requests in the long run.
func newWorker[K comparable](failed string, perSecond int, log *slog.Logger, do func(context.Context, K) error) *worker[K] {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[K](50*time.Millisecond, 30*time.Second)
	return &worker[K]{
		queue:   workqueue.NewTypedRateLimitingQueue(backoff),
		limiter: flowcontrol.NewTokenBucketRateLimiter(float32(perSecond), 2*perSecond),
		log:     log,
		failed:  failed,
		do:      do,
	}
}

func (w *worker[K]) add(key K) { w.queue.Add(key) }

func (w *worker[K]) addAfter(key K, d time.Duration) { w.queue.AddAfter(key, d) }

// pace waits until another request may be made, or ctx ends: then the request
// itself fails.
func (w *worker[K]) pace(ctx context.Context) { _ = w.limiter.Wait(ctx) }

// run works until ctx ends.
func (w *worker[K]) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, w.queue.ShutDown)
	defer stop()
	for {
		key, shutdown := w.queue.Get()
		if shutdown {
			return
		}
		w.process(ctx, key)
		w.queue.Done(key)
	}
}

func (w *worker[K]) process(ctx context.Context, key K) {
	err := w.do(ctx, key)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		w.queue.Forget(key)
		w.trouble = ""
		return
	}
	w.queue.AddRateLimited(key)
	if apierrors.IsConflict(err) {
		return
	}
	kind := cmp.Or(string(apierrors.ReasonForError(err)), "unreachable")
	if kind != w.trouble {
		w.trouble = kind
		w.log.Warn(w.failed, "err", err)
	}
}
