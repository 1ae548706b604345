package rig

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// netns is a network namespace besides the rig's own.
type netns struct{ file *os.File }

// do calls f on a thread that is inside the namespace; on a nil receiver it
// just calls f. Processes and sockets that f makes belong to the namespace.
func (n *netns) do(f func() error) error {
	if n == nil {
		return f()
	}
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w", err)
	}
	err = f()
	// A thread that cannot come back must not run anything else: it stays
	// locked and ends with its goroutine.
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return fmt.Errorf("leave network namespace: %w", back)
	}
	runtime.UnlockOSThread()
	return err
}
