package status

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	writes  prometheus.Counter
	events  *prometheus.CounterVec
	reports *prometheus.GaugeVec
}

// newMetrics registers the metrics with r, unless r is nil.
func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		writes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairway_status_writes_total",
			Help: "Writes of an Ingress's status.",
		}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairway_status_events_total",
			Help: "Events written for reports, by reason.",
		}, []string{"reason"}),
		reports: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairway_reports",
			Help: "Reports that hold at present, by reason and severity.",
		}, []string{"reason", "severity"}),
	}
	if r != nil {
		r.MustRegister(m.writes, m.events, m.reports)
	}
	return m
}
