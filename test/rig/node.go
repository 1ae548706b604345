package rig

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// nodes counts the nodes of this process.
var nodes atomic.Int64

// Node is a network namespace that stands for another machine: an Envoy in it
// binds its own ports 80 and 443 and is reached at IP. From inside, pod
// addresses are reached through the rig's namespace; what listens on loopback
// there, such as Fairway, through Forward.
type Node struct {
	IP    string
	netns *netns
}

// NewNode makes a node. It works only inside the rig's namespace.
func NewNode(t T) *Node {
	t.Helper()
	id := nodes.Add(1)
	inside, err := newNetns()
	if err != nil {
		t.Fatalf("new node: %v", err)
	}
	t.Cleanup(func() { inside.file.Close() })
	n := &Node{IP: fmt.Sprintf("10.246.%d.2", id), netns: inside}
	if err := n.connect(id); err != nil {
		t.Fatalf("connect node: %v", err)
	}
	return n
}

// newNetns makes a network namespace.
func newNetns() (*netns, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer home.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	file, err := os.Open("/proc/thread-self/ns/net")
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		panic(fmt.Sprintf("rig: leave network namespace: %v", back))
	}
	return &netns{file: file}, err
}

// connect joins the node to the rig's namespace by a pair of devices.
func (n *Node) connect(id int64) error {
	outer, inner := fmt.Sprintf("node%d", id), "eth0"
	pair := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: outer}, PeerName: inner,
		PeerNamespace: netlink.NsFd(n.netns.file.Fd()),
	}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("veth: %w", err)
	}
	gateway := fmt.Sprintf("10.246.%d.1", id)
	if err := addAddress(outer, gateway); err != nil {
		return err
	}
	return n.netns.do(func() error {
		if err := addAddress("lo", ""); err != nil {
			return err
		}
		if err := addAddress(inner, n.IP); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)})
	})
}

// addAddress sets a device up and gives it an address of a /24.
func addAddress(device, ip string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("device %s: %w", device, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("device %s up: %w", device, err)
	}
	if ip == "" {
		return nil
	}
	address, err := netlink.ParseAddr(ip + "/24")
	if err != nil {
		return err
	}
	return netlink.AddrAdd(link, address)
}

// Forward makes an address of the node, such as 127.0.0.1:18000, lead to an
// address of the rig's namespace.
func (n *Node) Forward(t T, inside, outside string) {
	t.Helper()
	var l net.Listener
	err := n.netns.do(func() (err error) {
		l, err = net.Listen("tcp", inside)
		return err
	})
	if err != nil {
		t.Fatalf("listen on %s in the node: %v", inside, err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go relay(conn, outside)
		}
	}()
}

// relay copies both ways until both sides have ended.
func relay(conn net.Conn, address string) {
	defer conn.Close()
	other, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer other.Close()
	done := make(chan struct{})
	go func() {
		copyHalf(other, conn)
		close(done)
	}()
	copyHalf(conn, other)
	<-done
}

// copyHalf copies one direction and passes its end on.
func copyHalf(to, from net.Conn) {
	// Either side may go at any time.
	_, _ = io.Copy(to, from)
	if tcp, ok := to.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}
