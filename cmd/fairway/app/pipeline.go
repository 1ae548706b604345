package app

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairway/envoy"
	"fairway/translator"
	"fairway/translator/model"
	"fairway/watcher"
	"fairway/xds"
)

// pipeline is the one goroutine that owns the translation: take dirty keys,
// apply, publish, hand out verdicts.
type pipeline struct {
	logger   *slog.Logger
	config   translator.Config
	source   model.Source
	queue    *watcher.Queue
	store    *xds.Store
	conclude func([]model.Verdict, uint64)
	tell     func([]model.Report)
	follow   func([]model.Ref)

	mu         sync.Mutex // held while the state below changes
	translator *translator.Translator
	generation uint64
	references []model.Ref // the Secrets that the Ingresses name

	seconds prometheus.Histogram
	panics  prometheus.Counter
}

// prepare completes a pipeline whose fields above the mutex are set.
func (p *pipeline) prepare(r prometheus.Registerer) {
	p.translator = translator.New(p.config)
	p.seconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "fairway_pipeline_translation_seconds", Help: "Time from taking dirty keys to having published what they changed.",
		Buckets: prometheus.ExponentialBuckets(10e-6, 4, 10),
	})
	p.panics = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fairway_pipeline_panics_total", Help: "Translations that failed on a programming error and were started anew.",
	})
	r.MustRegister(p.seconds, p.panics)
}

func (p *pipeline) run(ctx context.Context) error {
	for {
		dirty, since, err := p.queue.Take(ctx)
		if err != nil {
			return nil // the context ended
		}
		if err := p.step(dirty, since); err != nil {
			return err
		}
	}
}

func (p *pipeline) step(dirty model.Dirty, since time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	start := time.Now()
	result, err := p.apply(dirty)
	if err != nil {
		return err
	}
	if p.generation == 0 || !result.Delta.Empty() {
		p.generation = p.store.Publish(result.Delta, since)
	}
	if len(result.Verdicts) > 0 {
		p.conclude(result.Verdicts, p.generation)
	}
	if len(result.Notes) > 0 {
		p.tell(result.Notes)
	}
	if result.References != nil {
		p.references = result.References
	}
	// A Secret that changed its type has left one watch and needs another.
	if result.References != nil || changesSecret(dirty) {
		p.follow(p.references)
	}
	p.seconds.Observe(time.Since(start).Seconds())
	p.logger.Debug("translated", "config", len(dirty.Config), "endpoints", len(dirty.Endpoints),
		"upserts", len(result.Delta.Upserts), "removes", len(result.Delta.Removes), "generation", p.generation)
	return nil
}

// apply translates. After a panic the state of the translator is unknown, so
// everything is translated anew; what Envoys have stays in use until then.
func (p *pipeline) apply(dirty model.Dirty) (translator.Result, error) {
	result, err := protect(func() translator.Result { return p.translator.Apply(p.source, dirty) })
	if err == nil {
		return result, nil
	}
	p.panics.Inc()
	p.logger.Error("translation failed, starting it anew", "err", err)
	old := p.translator.Resources()
	p.translator = translator.New(p.config)
	result, err = protect(func() translator.Result { return p.translator.Apply(p.source, translator.Everything(p.source)) })
	if err != nil {
		return result, err
	}
	kept := map[envoy.Name]bool{}
	for _, r := range result.Delta.Upserts {
		kept[r.Key()] = true
	}
	for _, r := range old {
		if !kept[r.Key()] {
			result.Delta.Removes = append(result.Delta.Removes, r.Key())
		}
	}
	return result, nil
}

func protect(f func() translator.Result) (result translator.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("translating: %v\n%s", r, debug.Stack())
		}
	}()
	return f(), nil
}

func changesSecret(d model.Dirty) bool {
	for ref := range d.Config {
		if ref.Kind == model.Secret {
			return true
		}
	}
	return false
}

// verify translates everything from nothing and returns where that differs from
// what is published. It must find nothing unless changes are under way.
func (p *pipeline) verify() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	want := map[envoy.Name]string{}
	for _, r := range translator.Full(p.config, p.source).Delta.Upserts {
		want[r.Key()] = r.Version
	}
	var out []string
	for _, r := range p.translator.Resources() {
		if v, ok := want[r.Key()]; !ok || v != r.Version {
			out = append(out, fmt.Sprintf("%s %s: published %s, from scratch %q", r.Type, r.Name, r.Version, v))
		}
		delete(want, r.Key())
	}
	for n, v := range want {
		out = append(out, fmt.Sprintf("%s %s: not published, from scratch %s", n.Type, n.Name, v))
	}
	slices.Sort(out)
	return out
}
