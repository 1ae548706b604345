package watcher_test

import "net"

// dialer is a net.Dialer that makes a rest.Config unlike any other.
type dialer struct{ net.Dialer }
