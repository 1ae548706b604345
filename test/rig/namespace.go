package rig

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// outsideVariable carries the identity of the network namespace that the rig
// came from to the process inside.
const outsideVariable = "FAIRWAY_RIG_OUTSIDE"

// The ranges whose every address is local inside the namespace. The API server
// refuses loopback addresses in EndpointSlices, so backends live here.
const (
	podRange  = "10.245.0.0/16"
	podRange6 = "fd00:245::/64"
)

// Main runs the tests of a package inside a network namespace. It is for
// TestMain and does not return. The setup functions run before the tests, for
// parts that the whole package shares.
func Main(m *testing.M, setup ...func(T)) {
	Enter()
	s := &Session{name: "tests"}
	os.Exit(s.run(func() {
		for _, f := range setup {
			f(s)
		}
		if m.Run() != 0 {
			s.fail()
		}
	}))
}

// Enter continues the program inside a new network namespace: it starts the
// program again there, waits for it and exits with its code. It returns only
// in the inner process. Call it first in main.
func Enter() {
	outside := os.Getenv(outsideVariable)
	if outside == "" {
		os.Exit(runInside())
	}
	os.Unsetenv(outsideVariable)
	if err := enterChecks(outside); err != nil {
		fmt.Fprintln(os.Stderr, "rig:", err)
		os.Exit(1)
	}
}

func enterChecks(outside string) error {
	inside, err := networkNamespace()
	if err != nil {
		return err
	}
	if inside == outside {
		return fmt.Errorf("still in the network namespace %s of the machine", outside)
	}
	return setUpNetwork()
}

// networkNamespace returns the identity of the process's network namespace.
func networkNamespace() (string, error) { return os.Readlink("/proc/self/ns/net") }

// runInside runs this program once more inside new namespaces and returns its
// exit code.
func runInside() int {
	outside, err := networkNamespace()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rig:", err)
		return 1
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), outsideVariable+"="+outside)
	cmd.SysProcAttr = namespaceAttributes(os.Getuid(), os.Getgid())

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	// The death signal follows the thread that started the child.
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "rig: no network namespace: %v\n", explain(err))
		return 1
	}
	go func() {
		for s := range signals {
			// An error means that the child has just ended.
			_ = cmd.Process.Signal(s)
		}
	}()
	return exitCode(cmd.Wait())
}

// namespaceAttributes asks for a network namespace. Whoever is not root also
// needs a user namespace, in which it then is root.
func namespaceAttributes(uid, gid int) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if uid != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	return attr
}

func explain(err error) error {
	if os.Getuid() == 0 {
		return fmt.Errorf("%w (root needs the capability CAP_SYS_ADMIN and room under the sysctl user.max_net_namespaces)", err)
	}
	return fmt.Errorf("%w (this system does not allow unprivileged user namespaces: "+
		"run the tests as root, or allow them by the sysctls user.max_user_namespaces, "+
		"kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns)", err)
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		if err != nil {
			return 1
		}
		return 0
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}

// setUpNetwork makes the loopback device carry the pod ranges.
func setUpNetwork() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("loopback device: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("loopback device up: %w", err)
	}
	if err := addLocalRange(lo, podRange); err != nil {
		return err
	}
	// Root in a user namespace may bind every port anyway; a read-only /proc
	// is no reason to fail.
	_ = writeSysctl("net/ipv4/ip_unprivileged_port_start", "0")
	if !HasIPv6() {
		return nil
	}
	// Unlike IPv4, binding to a routed-only address has to be allowed.
	if err := writeSysctl("net/ipv6/ip_nonlocal_bind", "1"); err != nil {
		return err
	}
	return addLocalRange(lo, podRange6)
}

// HasIPv6 reports whether the kernel speaks IPv6.
func HasIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6")
	return err == nil
}

// addLocalRange does what "ip route add local RANGE dev lo" does.
func addLocalRange(lo netlink.Link, cidr string) error {
	_, dst, err := net.ParseCIDR(cidr)
	if err != nil {
		return err
	}
	err = netlink.RouteReplace(&netlink.Route{
		LinkIndex: lo.Attrs().Index,
		Dst:       dst,
		Type:      unix.RTN_LOCAL,
		Table:     unix.RT_TABLE_LOCAL,
		Scope:     netlink.SCOPE_HOST,
	})
	if err != nil {
		return fmt.Errorf("local route %s: %w", cidr, err)
	}
	return nil
}

func writeSysctl(name, value string) error {
	return os.WriteFile("/proc/sys/"+name, []byte(value), 0o644)
}
