package rig

import (
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
)

// The ports of the rig lie below the range from which the kernel takes the
// ports of outgoing connections.
const (
	firstPort = 20000
	lastPort  = 32000
)

var (
	ports atomic.Int64
	pods  atomic.Int64
)

// Port returns a TCP port that nobody listens on and that the rig has not
// given to anyone else.
func Port(t T) int {
	t.Helper()
	for range lastPort - firstPort {
		port := firstPort + int(ports.Add(1))%(lastPort-firstPort)
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			continue
		}
		l.Close()
		return port
	}
	t.Fatalf("no free port between %d and %d", firstPort, lastPort)
	return 0
}

// Loopback returns "127.0.0.1:port" with a port of its own.
func Loopback(t T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(Port(t)))
}

// PodIP returns a pod address that the rig has not given to anyone else.
func PodIP() string {
	n := pods.Add(1)
	return fmt.Sprintf("10.245.%d.%d", 1+n/250, 1+n%250)
}

// PodIP6 is PodIP for IPv6.
func PodIP6() string {
	n := pods.Add(1)
	return fmt.Sprintf("fd00:245::%x:%x", 1+n/0xffff, 1+n%0xffff)
}
