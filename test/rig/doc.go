// Package rig starts the real parts that Fairway works with and gives tests
// their hands on them: etcd and kube-apiserver, the fairway binary, Envoys,
// echo backends on "pod" addresses, clients, a load generator and a proxy that
// injects faults between Fairway and the API server.
//
// Everything lives in a network namespace of its own, so that tests use any
// address and port without touching the machine:
//
//	func TestMain(m *testing.M) { rig.Main(m) }
//
// A program uses Enter and Run instead of Main. Whatever the rig starts is
// killed when the test ends, and by the kernel when the test process dies.
// Nothing is ever skipped: a part that is missing fails the test with the
// command that installs it.
package rig
