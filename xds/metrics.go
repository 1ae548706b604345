package xds

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairway/envoy"
)

// metrics are the package's own numbers. Streams of people do not count.
type metrics struct {
	streams     *prometheus.GaugeVec
	pushes      [envoy.NumTypes]prometheus.Counter
	acks        [envoy.NumTypes]prometheus.Counter
	nacks       [envoy.NumTypes]prometheus.Counter
	resources   [envoy.NumTypes]prometheus.Gauge
	propagation [envoy.NumTypes]prometheus.Observer
}

// newMetrics makes every series at once, so that a type without events is
// reported as zero. Labels are bounded: types and protocols only.
func newMetrics(reg prometheus.Registerer) *metrics {
	byType := []string{"type"}
	streams := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairway_xds_streams", Help: "Open discovery streams of Envoys, by protocol.",
	}, []string{"protocol"})
	pushes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairway_xds_pushes_total", Help: "Responses sent to Envoys, by resource type.",
	}, byType)
	acks := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairway_xds_acks_total", Help: "Responses that Envoys accepted, by resource type.",
	}, byType)
	nacks := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairway_xds_nacks_total", Help: "Responses that Envoys refused, by resource type.",
	}, byType)
	resources := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairway_xds_resources", Help: "Published resources, by type.",
	}, byType)
	propagation := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "fairway_xds_propagation_seconds",
		Help:    "Time from the watch event to the acknowledgement of the last connected Envoy that needs the change, by resource type.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
	}, byType)
	if reg != nil {
		reg.MustRegister(streams, pushes, acks, nacks, resources, propagation)
	}
	m := &metrics{streams: streams}
	m.streams.WithLabelValues(protocolName(true))
	m.streams.WithLabelValues(protocolName(false))
	for t := range envoy.NumTypes {
		name := envoy.Type(t).String()
		m.pushes[t], m.acks[t], m.nacks[t] = pushes.WithLabelValues(name), acks.WithLabelValues(name), nacks.WithLabelValues(name)
		m.resources[t], m.propagation[t] = resources.WithLabelValues(name), propagation.WithLabelValues(name)
	}
	return m
}

func protocolName(delta bool) string {
	if delta {
		return "delta"
	}
	return "sotw"
}

// maxWaits bounds how many publishes one session is waited for per type: a
// client that is further behind counts as stuck and is left out.
const maxWaits = 64

// propagation follows the changes of one type in one publish until the last
// session that they concern has answered.
type propagation struct {
	since   time.Time
	out     prometheus.Observer
	waiting atomic.Int32
	last    atomic.Int64 // Unix nanoseconds of the last answer
}

// answered counts one session off. A session that ended without an answer
// (at is zero) does not move the time of the last answer.
func (p *propagation) answered(at time.Time) {
	if !at.IsZero() {
		p.last.Store(at.UnixNano())
	}
	if p.waiting.Add(-1) > 0 {
		return
	}
	if last := p.last.Load(); last != 0 {
		p.out.Observe(time.Unix(0, last).Sub(p.since).Seconds())
	}
}
