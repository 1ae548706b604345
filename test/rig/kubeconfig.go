package rig

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a client configuration to a file and returns its
// path.
func (k *Kube) writeKubeconfig(t T, name string, c *rest.Config) string {
	t.Helper()
	file := clientcmdapi.NewConfig()
	file.Clusters["rig"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: c.BearerToken}
	file.Contexts["rig"] = &clientcmdapi.Context{Cluster: "rig", AuthInfo: name}
	file.CurrentContext = "rig"
	path := k.file(name + ".kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		t.Fatalf("write kubeconfig: %v", err)
	}
	return path
}

// ServiceAccountKubeconfig creates the ServiceAccount, and its namespace, if
// missing and returns a kubeconfig file with a token of it, valid for an hour.
func (k *Kube) ServiceAccountKubeconfig(t T, namespace, name string) string {
	t.Helper()
	ctx := context.Background()
	k.Namespace(t, namespace)
	accounts := k.Client.CoreV1().ServiceAccounts(namespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("create ServiceAccount: %v", err)
	}
	seconds := int64(time.Hour / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := accounts.CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("token of %s/%s: %v", namespace, name, err)
	}
	return k.writeKubeconfig(t, namespace+"-"+name, k.config(k.Config.Host, answer.Status.Token))
}

// Bind gives FairwayUser the rights of a ClusterRole everywhere. Roles that
// aggregate others, such as view, are empty here: a controller fills them.
func (k *Kube) Bind(t T, clusterRole string) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("rig-%s-%s", FairwayUser, clusterRole)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: FairwayUser}},
	}
	_, err := k.Client.RbacV1().ClusterRoleBindings().Create(context.Background(), binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("bind ClusterRole %s: %v", clusterRole, err)
	}
}

// Namespace creates a namespace if it is missing and returns its name.
func (k *Kube) Namespace(t T, name string) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := k.Client.CoreV1().Namespaces().Create(context.Background(), namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("create namespace %s: %v", name, err)
	}
	return name
}
