package app

import (
	"fmt"

	"fairway/translator/model"
	"fairway/xds"
)

// refused tells the owners of the Ingresses that a resource was made for that an
// Envoy refuses it, in Envoy's words. Whatever passed our own validation and is
// refused all the same stays as it was in that Envoy until it changes.
func (p *pipeline) refused(n xds.Nack) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var reports []model.Report
	for _, owner := range n.Owners {
		object, ok := model.ParseRef(owner)
		if !ok {
			continue
		}
		for _, ingress := range p.translator.Users(object) {
			reports = append(reports, model.Report{
				Object: ingress, Reason: "RefusedByEnvoy", Severity: model.Error,
				Message: fmt.Sprintf("Envoy refuses the %s made of %s: %s", n.Type, object, n.Message),
			})
		}
	}
	p.tell(reports)
}
