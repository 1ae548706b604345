package translator

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"fairway/translator/model"
)

// tls reads spec.tls: which server names get which certificate. A host that no
// entry lists gets the first certificate that covers it. The hosts of an
// Ingress with TLS are redirected from plain HTTP even if the certificate is
// not there yet.
func (b *fragmentBuilder) tls(ing *networkingv1.Ingress) {
	if len(ing.Spec.TLS) == 0 {
		return
	}
	listed := map[string]bool{}
	var usable []*certificate
	for i, entry := range ing.Spec.TLS {
		field := fmt.Sprintf("spec.tls[%d]", i)
		names := b.listedNames(entry)
		for _, n := range names {
			listed[n] = true
		}
		if cert := b.certificate(ing, field, entry); cert != nil {
			usable = append(usable, cert)
			b.nameAll(names, cert, field)
		}
	}
	for host, c := range b.claims {
		c.tls = host != catchAll
		if !c.tls || listed[host] {
			continue
		}
		if i := slices.IndexFunc(usable, func(c *certificate) bool { return c.covers(host) }); i >= 0 {
			b.names[host] = b.grant(host, usable[i])
		} else if len(usable) == len(ing.Spec.TLS) {
			b.report("CertificateMismatch", model.Warning, "spec.tls", "no certificate of this Ingress is for %s: it gets the default certificate", host)
		}
	}
}

// certificate returns the certificate of a TLS entry; nil, after a report, if
// it has none that can be used. An entry without a Secret means the default
// certificate.
func (b *fragmentBuilder) certificate(ing *networkingv1.Ingress, field string, entry networkingv1.IngressTLS) *certificate {
	if entry.SecretName == "" {
		return nil
	}
	ref := model.Ref{Kind: model.Secret, Namespace: ing.Namespace, Name: entry.SecretName}
	b.refer(ref)
	b.secrets = append(b.secrets, ref)
	cert := b.certificates(ref)
	b.missing = b.missing || cert.source == nil
	if cert.problem != nil {
		b.report(cert.problem.reason, model.Error, field+".secretName", "%s: its hosts get the default certificate", cert.problem.message)
		return nil
	}
	for _, w := range cert.warnings {
		b.report(w.reason, model.Warning, field+".secretName", "%s", w.message)
	}
	return cert
}

// grant is a usable certificate for a server name, and how well the Ingress may
// speak for that name: whoever has a rule for just this host comes before those
// who take it with a wildcard, and these before those who take all hosts.
type grant struct {
	secret model.Ref
	rank   int
}

func (b *fragmentBuilder) grant(name string, cert *certificate) grant {
	g := grant{secret: cert.ref}
	switch {
	case b.claims[name] != nil:
	case b.claims[wildcardOf(name)] != nil:
		g.rank = 1
	default:
		g.rank = 2
	}
	return g
}

// nameAll gives a certificate to names that have none yet.
func (b *fragmentBuilder) nameAll(names []string, cert *certificate, field string) {
	for _, n := range names {
		if _, taken := b.names[n]; taken {
			continue
		}
		b.names[n] = b.grant(n, cert)
		if cert.named() && !cert.covers(n) {
			b.report("CertificateMismatch", model.Warning, field+".hosts", "the certificate in %s is not for %s: clients will refuse it", cert.ref, n)
		}
	}
}

// listedNames returns the names that a TLS entry lists, as far as the Ingress
// has a rule that takes them. "*.a.test" also lists the Ingress's hosts x.a.test.
func (b *fragmentBuilder) listedNames(entry networkingv1.IngressTLS) []string {
	var out []string
	for _, h := range entry.Hosts {
		h = strings.ToLower(h)
		if hostName.MatchString(h) && (b.claims[catchAll] != nil || b.claims[h] != nil || b.claims[wildcardOf(h)] != nil) {
			out = append(out, h)
		}
		for host := range b.claims {
			if wildcardOf(host) == h {
				out = append(out, host)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// wildcardOf returns the wildcard host that a host falls under.
func wildcardOf(host string) string {
	_, parent, _ := strings.Cut(host, ".")
	return "*." + parent
}
