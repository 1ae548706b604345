package watcher

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	events *prometheus.CounterVec
	synced prometheus.Gauge
}

// newMetrics registers the metrics with r, unless r is nil. The number of
// objects of each kind is asked for when the metrics are read.
func newMetrics(r prometheus.Registerer, sizes map[string]func() int) (*metrics, error) {
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairway_watcher_events_total",
			Help: "Additions, changes and deletions that the watches delivered, by kind.",
		}, []string{"kind"}),
		synced: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairway_watcher_synced",
			Help: "1 once every object that existed at the start has been processed.",
		}),
	}
	if r == nil {
		return m, nil
	}
	collectors := []prometheus.Collector{m.events, m.synced}
	for kind, size := range sizes {
		collectors = append(collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "fairway_watcher_objects",
			Help:        "Objects held in memory, by kind.",
			ConstLabels: prometheus.Labels{"kind": kind},
		}, func() float64 { return float64(size()) }))
	}
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
