package translator

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairway/translator/model"
)

// catchAll is the host of rules without one, and of everything that no other
// host takes.
const catchAll = "*"

// acmePath is where certificate authorities look for challenges over plain
// HTTP: no-tls-redirect-locations of ingress-nginx.
const acmePath = "/.well-known/acme-challenge"

// fragment is all that one Ingress asks for, in Fairway's own terms. It is
// immutable once built.
type fragment struct {
	ref     model.Ref
	uid     types.UID // another one under the same name is another Ingress
	exists  bool
	created time.Time
	served  bool
	missing bool              // a Service or Secret that it names does not exist
	claims  map[string]*claim // by host
	names   map[string]grant  // server name → its certificate
	targets map[clusterKey]struct{}
	uses    []model.Ref // every object that was looked at
	secrets []model.Ref // Secrets that spec.tls names
	reports []model.Report
}

// claim is what one Ingress asks for on one host.
type claim struct {
	from     *fragment
	routes   []route
	fallback *target // defaultBackend, for what no path takes
	tls      bool    // the Ingress has TLS, so plain HTTP is redirected
	only     bool    // the Ingress has a default backend and no rules
}

type route struct {
	key    pathKey
	raw    string  // the path as its owner wrote it, where a client may send that too
	target *target // nil: the host's fallback
	field  string
}

// compareAge orders Ingresses: the older one wins a conflict.
func (f *fragment) compareAge(o *fragment) int {
	return cmp.Or(f.created.Compare(o.created), f.ref.Compare(o.ref))
}

type fragmentBuilder struct {
	*fragment
	config       *Config
	src          model.Source
	certificates func(model.Ref) *certificate
}

// buildFragment reads one Ingress. An Ingress that makes the reader panic is
// left out and says so, until something that it refers to changes.
func buildFragment(ref model.Ref, c *Config, src model.Source, certificates func(model.Ref) *certificate) *fragment {
	f := newFragment(ref)
	b := &fragmentBuilder{fragment: f, config: c, src: src, certificates: certificates}
	if err := attempt(func() error { b.read(src.Ingress(ref)); return nil }); err != nil {
		left := newFragment(ref)
		left.exists, left.served, left.uid, left.created, left.uses = true, true, f.uid, f.created, f.uses
		left.reports = []model.Report{{Object: ref, Reason: "InternalError", Severity: model.Error,
			Message: "Fairway failed on this Ingress and leaves it out; please report this: " + err.Error()}}
		f = left
	}
	slices.SortFunc(f.reports, model.Report.Compare)
	slices.SortFunc(f.uses, model.Ref.Compare)
	f.uses = slices.Compact(f.uses)
	return f
}

func newFragment(ref model.Ref) *fragment {
	return &fragment{ref: ref, claims: map[string]*claim{}, names: map[string]grant{}, targets: map[clusterKey]struct{}{}}
}

func (b *fragmentBuilder) refer(ref model.Ref) { b.uses = append(b.uses, ref) }

func (b *fragmentBuilder) report(reason string, s model.Severity, field, format string, args ...any) {
	b.reports = append(b.reports, model.Report{Object: b.ref, Reason: reason, Severity: s, Field: field, Message: fmt.Sprintf(format, args...)})
}

func (b *fragmentBuilder) cluster(k clusterKey) target {
	b.targets[k] = struct{}{}
	return target{cluster: k.name()}
}

// read reads the Ingress; nil stands for one that does not exist.
func (b *fragmentBuilder) read(ing *networkingv1.Ingress) {
	if ing == nil {
		return
	}
	b.exists, b.uid, b.created = true, ing.UID, ing.CreationTimestamp.Time
	if b.served = b.ours(ing); !b.served {
		return
	}
	if ing.Spec.DefaultBackend != nil && b.config.DisableCatchAll {
		b.served = false
		b.report("CatchAllDisabled", model.Error, "spec.defaultBackend", "Ingresses with a default backend are not served here: remove it")
		return
	}
	for i, rule := range ing.Spec.Rules {
		b.rule(ing, i, rule)
	}
	b.defaultBackend(ing)
	b.tls(ing)
	if unprotected := b.annotations(ing); unprotected {
		b.close()
	}
}

var hostName = regexp.MustCompile(`^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

func (b *fragmentBuilder) rule(ing *networkingv1.Ingress, i int, rule networkingv1.IngressRule) {
	field := fmt.Sprintf("spec.rules[%d]", i)
	name := strings.ToLower(rule.Host)
	if name == "" {
		name = catchAll
	} else if !hostName.MatchString(name) || len(name) > 253 {
		b.report("InvalidHost", model.Error, field+".host", "host %q is not a DNS name, nor one with a single * as its first label: the rule is left out", rule.Host)
		return
	}
	c := b.claim(name)
	if rule.HTTP == nil {
		return
	}
	for j, p := range rule.HTTP.Paths {
		b.path(ing, c, fmt.Sprintf("%s.http.paths[%d]", field, j), p)
	}
}

func (b *fragmentBuilder) claim(host string) *claim {
	if b.claims[host] == nil {
		b.claims[host] = &claim{from: b.fragment}
	}
	return b.claims[host]
}

func (b *fragmentBuilder) path(ing *networkingv1.Ingress, c *claim, field string, p networkingv1.HTTPIngressPath) {
	key, raw, err := readPath(p)
	if err != nil {
		b.report("InvalidPath", model.Error, field+".path", "%v: the path is left out", err)
		return
	}
	r := route{key: key, raw: raw, field: field}
	if p.Backend.Service != nil {
		t := b.backend(ing.Namespace, field+".backend.service", p.Backend.Service)
		r.target = &t
	} else {
		b.report("ResourceBackend", model.Error, field+".backend.resource", "backends other than Services are not supported: the path goes to the default backend")
	}
	c.routes = append(c.routes, r)
}

// defaultBackend gives the Ingress's default backend to its own hosts and
// claims everything that no host takes.
func (b *fragmentBuilder) defaultBackend(ing *networkingv1.Ingress) {
	be := ing.Spec.DefaultBackend
	if be == nil {
		return
	}
	if be.Service == nil {
		b.report("ResourceBackend", model.Error, "spec.defaultBackend.resource", "backends other than Services are not supported: the default backend answers 404")
		return
	}
	t := b.backend(ing.Namespace, "spec.defaultBackend.service", be.Service)
	b.claim(catchAll).only = len(ing.Spec.Rules) == 0
	for _, c := range b.claims {
		c.fallback = &t
	}
}
