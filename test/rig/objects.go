package rig

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PodPort is the port on which backends listen unless told otherwise. It is
// none that Envoy takes on all addresses.
const PodPort = 9376

// ServicePort returns a port of a Service whose pods listen on PodPort. A
// Service with one port may leave its name empty.
func ServicePort(name string, port int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: port, TargetPort: intstr.FromInt32(PodPort), Protocol: corev1.ProtocolTCP}
}

// Service returns a Service without a selector, so that only the test decides
// about its endpoints. Without ports it has port 80.
func Service(namespace, name string, ports ...corev1.ServicePort) *corev1.Service {
	if len(ports) == 0 {
		ports = []corev1.ServicePort{ServicePort("", 80)}
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: ports},
	}
}

// Slice returns an EndpointSlice of a Service with one port, PodPort, without
// a name, and ready endpoints at the given addresses. Tests change the result
// where they need more.
func Slice(namespace, service string, addresses ...string) *discoveryv1.EndpointSlice {
	name, port, protocol := "", int32(PodPort), corev1.ProtocolTCP
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      service + "-1",
			Labels: map[string]string{
				discoveryv1.LabelServiceName: service,
				discoveryv1.LabelManagedBy:   "rig.fairway.sh",
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
		Endpoints:   []discoveryv1.Endpoint{},
	}
	ready := true
	for _, address := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{address},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return s
}

// SliceOf returns the EndpointSlice of backends of one Service, which all
// listen on the same port.
func SliceOf(namespace, service string, backends ...*Backend) *discoveryv1.EndpointSlice {
	s := Slice(namespace, service)
	for _, b := range backends {
		port := int32(b.Port())
		s.Ports[0].Port = &port
		s.Endpoints = append(s.Endpoints, Slice(namespace, service, b.IP()).Endpoints...)
	}
	return s
}

// TLSSecret returns a Secret of the type kubernetes.io/tls.
func TLSSecret(namespace, name string, pair Pair) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Type:       corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey:       pair.CertPEM,
			corev1.TLSPrivateKeyKey: pair.KeyPEM,
		},
	}
}
