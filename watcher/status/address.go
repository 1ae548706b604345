package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairway/translator/model"
)

// entries turns addresses into the form of the status, sorted, each once.
func entries(addresses []string) []networkingv1.IngressLoadBalancerIngress {
	var out []networkingv1.IngressLoadBalancerIngress
	for _, a := range addresses {
		if _, err := netip.ParseAddr(a); err == nil {
			out = append(out, networkingv1.IngressLoadBalancerIngress{IP: a})
		} else if a != "" {
			out = append(out, networkingv1.IngressLoadBalancerIngress{Hostname: a})
		}
	}
	slices.SortFunc(out, compareEntries)
	return slices.CompactFunc(out, sameEntry)
}

func compareEntries(a, b networkingv1.IngressLoadBalancerIngress) int {
	return cmp.Or(cmp.Compare(a.IP, b.IP), cmp.Compare(a.Hostname, b.Hostname))
}

// sameEntry is false for an entry with ports: Fairway writes none.
func sameEntry(a, b networkingv1.IngressLoadBalancerIngress) bool {
	return compareEntries(a, b) == 0 && len(a.Ports) == 0 && len(b.Ports) == 0
}

// shows reports whether the status holds exactly our addresses, in any order.
func (w *Writer) shows(ing *networkingv1.Ingress) bool {
	have := slices.SortedFunc(slices.Values(ing.Status.LoadBalancer.Ingress), compareEntries)
	return slices.EqualFunc(have, w.addresses, sameEntry)
}

// writeStatus makes the status of one Ingress what it should be.
func (w *Writer) writeStatus(ctx context.Context, ref model.Ref) error {
	served, was := w.state(ref)
	if served {
		return w.publish(ctx, ref)
	}
	return w.clear(ctx, ref, was)
}

// state reports whether the Ingress may show our addresses now, and whether it
// was ours before.
func (w *Writer) state(ref model.Ref) (served, was bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	generation, ok := w.served[ref]
	return ok && generation <= w.settled && !time.Now().Before(w.patient[ref]), w.former[ref]
}

// publish writes our addresses unless they are there.
func (w *Writer) publish(ctx context.Context, ref model.Ref) error {
	if ing := w.o.Source.Ingress(ref); ing == nil || w.shows(ing) {
		return nil
	}
	fresh, err := w.fetch(ctx, ref)
	if err != nil || fresh == nil || w.shows(fresh) {
		return err
	}
	return w.patch(ctx, fresh, w.addresses)
}

// clear removes our addresses from an Ingress that is not ours any more. It
// must not touch what another controller wrote, even if that is the same
// address: either this process served the Ingress, or the API server's record
// of field managers names us as the writer.
func (w *Writer) clear(ctx context.Context, ref model.Ref, was bool) error {
	if ing := w.o.Source.Ingress(ref); ing == nil && !was || ing != nil && !w.shows(ing) && !was {
		return nil
	}
	fresh, err := w.fetch(ctx, ref)
	if err != nil {
		return err
	}
	if fresh != nil && w.shows(fresh) && (was || wroteStatus(fresh)) {
		if err := w.patch(ctx, fresh, nil); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.former, ref)
	return nil
}

// wroteStatus reports whether Fairway wrote the status that the Ingress has.
func wroteStatus(ing *networkingv1.Ingress) bool {
	return slices.ContainsFunc(ing.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == component && f.Subresource == "status"
	})
}

// fetch returns the Ingress as it is now, or nil if it does not exist.
func (w *Writer) fetch(ctx context.Context, ref model.Ref) (*networkingv1.Ingress, error) {
	w.statuses.pace(ctx)
	ing, err := w.o.Client.NetworkingV1().Ingresses(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", ref, err)
	}
	return ing, nil
}

// patch replaces the addresses in the status of an Ingress, unless the Ingress
// has changed since it was read: then the error leads to another attempt.
func (w *Writer) patch(ctx context.Context, ing *networkingv1.Ingress, addresses []networkingv1.IngressLoadBalancerIngress) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": ing.ResourceVersion},
		"status":   map[string]any{"loadBalancer": map[string]any{"ingress": addresses}},
	})
	if err != nil {
		return fmt.Errorf("encoding status: %w", err)
	}
	_, err = w.o.Client.NetworkingV1().Ingresses(ing.Namespace).Patch(ctx, ing.Name, types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: component}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing status of Ingress %s/%s: %w", ing.Namespace, ing.Name, err)
	}
	w.metrics.writes.Inc()
	return nil
}
