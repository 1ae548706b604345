package rig

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestNamespaceIsSeparate(t *testing.T) {
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		// The devices of NewNode go a moment after the node.
		if i.Flags&net.FlagLoopback == 0 && !strings.HasPrefix(i.Name, "node") {
			t.Errorf("the namespace has the device %s besides loopback", i.Name)
		}
	}
	if os.Getuid() != 0 {
		t.Errorf("uid = %d, want 0", os.Getuid())
	}
	if _, set := os.LookupEnv(outsideVariable); set {
		t.Errorf("%s leaks to programs that the tests start", outsideVariable)
	}
}

func TestNamespaceCheckRefusesTheSame(t *testing.T) {
	inside, err := networkNamespace()
	if err != nil {
		t.Fatal(err)
	}
	if err := enterChecks(inside); err == nil {
		t.Error("a namespace that is the outer one was accepted")
	}
}

func TestPodAddressesAreLocal(t *testing.T) {
	addresses := []string{PodIP(), PodIP()}
	if HasIPv6() {
		addresses = append(addresses, PodIP6())
	}
	for _, ip := range addresses {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, "80"))
		if err != nil {
			t.Errorf("listen on %s: %v", ip, err)
			continue
		}
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Errorf("connect to %s: %v", ip, err)
		} else {
			conn.Close()
		}
		l.Close()
	}
}

func TestAttributesOutsideRoot(t *testing.T) {
	root, user := namespaceAttributes(0, 0), namespaceAttributes(1000, 1001)
	if root.Cloneflags&syscall.CLONE_NEWUSER != 0 || root.Cloneflags&syscall.CLONE_NEWNET == 0 {
		t.Errorf("root: flags %#x", root.Cloneflags)
	}
	if user.Cloneflags&syscall.CLONE_NEWUSER == 0 || user.Cloneflags&syscall.CLONE_NEWNET == 0 {
		t.Errorf("user: flags %#x", user.Cloneflags)
	}
	if user.UidMappings[0].HostID != 1000 || user.GidMappings[0].HostID != 1001 {
		t.Errorf("user: mappings %v %v", user.UidMappings, user.GidMappings)
	}
}

func TestExitCode(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 3": 3, "kill -TERM $$": 128 + 15} {
		if got := exitCode(exec.Command("sh", "-c", script).Run()); got != want {
			t.Errorf("%s: exit code %d, want %d", script, got, want)
		}
	}
}
