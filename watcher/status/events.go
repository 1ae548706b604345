package status

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairway/translator/model"
)

// Limits of the API server for the parts of an Event.
const (
	maxName    = 253
	maxMessage = 1024
)

// writeEvent writes the Event of a report that is still true. Its name is made
// from its content, so a restarted process or a second replica renews the same
// Event instead of adding one. (client-go's recorders merge different messages
// of one reason, and drop what exceeds a budget for each object.)
func (w *Writer) writeEvent(ctx context.Context, r model.Report) error {
	w.mu.Lock()
	current := w.raised[r] > 0 || w.told[r]
	w.mu.Unlock()
	ing := w.o.Source.Ingress(r.Object)
	if !current || ing == nil {
		return nil
	}
	w.events.pace(ctx)
	event := eventOf(r, ing, time.Now())
	client := w.o.Client.CoreV1().Events(event.Namespace)
	_, err := client.Create(ctx, event, metav1.CreateOptions{FieldManager: component})
	if apierrors.IsAlreadyExists(err) {
		body, _ := json.Marshal(map[string]any{"lastTimestamp": event.LastTimestamp}) // a time always has a JSON form
		_, err = client.Patch(ctx, event.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: component})
	}
	if err == nil || final(err) {
		w.mu.Lock()
		delete(w.told, r)
		w.mu.Unlock()
	}
	switch {
	case err == nil:
		w.metrics.events.WithLabelValues(r.Reason).Inc()
		return nil
	case final(err):
		w.log.Debug("event is refused", "ingress", r.Object.String(), "reason", r.Reason, "err", err)
		return nil
	}
	return fmt.Errorf("writing event for %s: %w", r.Object, err)
}

// final reports whether trying again is useless: Fairway may not write Events
// there, the namespace is going away, or the Event is malformed.
func final(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// eventOf makes the Event of a report.
func eventOf(r model.Report, ing *networkingv1.Ingress, now time.Time) *corev1.Event {
	t := metav1.NewTime(now)
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: ing.Namespace, Name: eventName(r, ing)},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: networkingv1.SchemeGroupVersion.String(),
			Kind:       string(model.Ingress),
			Namespace:  ing.Namespace,
			Name:       ing.Name,
			UID:        ing.UID,
		},
		Reason:              r.Reason,
		Message:             message(r),
		Type:                corev1.EventTypeWarning,
		Count:               1,
		FirstTimestamp:      t,
		LastTimestamp:       t,
		Source:              corev1.EventSource{Component: component},
		ReportingController: component,
	}
}

// eventName is the name of the Ingress and a hash of what makes the Event
// different from others.
func eventName(r model.Report, ing *networkingv1.Ingress) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{string(ing.UID), r.Reason, r.Field, r.Message}, "\x00")))
	suffix := fmt.Sprintf(".%x", sum[:8])
	name := ing.Name[:min(len(ing.Name), maxName-len(suffix))]
	return strings.TrimRight(name, "-.") + suffix // no label of a name may end in either
}

// message is what people see. The field stands in it, and not in the reference
// to the object, because `kubectl get events` shows only this.
func message(r model.Report) string {
	text := r.Message
	if r.Field != "" && !strings.Contains(text, r.Field) {
		text = r.Field + ": " + text
	}
	if len(text) <= maxMessage {
		return text
	}
	const more = "…"
	return strings.ToValidUTF8(text[:maxMessage-len(more)], "") + more
}
