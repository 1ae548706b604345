package rig

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// hangVariable makes TestHang hang.
const hangVariable = "FAIRWAY_RIG_HANG"

// TestHang is for TestChildrenDieWithTheRig, which runs it in a process of its
// own. It says its child's id and waits to be killed.
func TestHang(t *testing.T) {
	if os.Getenv(hangVariable) == "" {
		return
	}
	p := newProcess(t, "child", "/bin/sleep", "600")
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("child=%d\n", p.pid())
	select {}
}

func TestChildrenDieWithTheRig(t *testing.T) {
	var out syncBuffer
	outer := exec.Command("/proc/self/exe", "-test.run=^TestHang$")
	outer.Env = append(os.Environ(), hangVariable+"=1")
	outer.Stdout = &out
	if err := outer.Start(); err != nil {
		t.Fatal(err)
	}
	child := 0
	Eventually(t, 10*time.Second, func() (err error) {
		_, id, _ := strings.Cut(out.String(), "child=")
		child, err = strconv.Atoi(strings.TrimSpace(id))
		return err
	}, "the inner process says its child")
	if !running(child) {
		t.Fatalf("child %d does not run", child)
	}
	// Wait returns an error, for the process was killed.
	_ = outer.Process.Kill()
	_ = outer.Wait()
	Eventually(t, 10*time.Second, func() error {
		if running(child) {
			return fmt.Errorf("child %d runs", child)
		}
		return nil
	}, "the child dies with the outermost process")
}

// running reports whether a process exists and is not only waiting to be
// noticed by its parent.
func running(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && !bytes.Contains(status, []byte("State:\tZ"))
}

func TestProcessThatEndsFailsTheWait(t *testing.T) {
	p := newProcess(t, "loser", "/bin/sh", "-c", "echo no such flag; exit 3")
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	err := p.waitReady(time.Minute, func() error { return os.ErrNotExist })
	if err == nil || !strings.Contains(err.Error(), "ended with code 3") || !strings.Contains(err.Error(), "no such flag") {
		t.Errorf("error = %v", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %s to notice", took)
	}
}

func TestStopKillsWhoDoesNotListen(t *testing.T) {
	p := newProcess(t, "deaf", "/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	ready := func() error {
		if !strings.Contains(p.log(), "ready") {
			return os.ErrNotExist
		}
		return nil
	}
	if err := p.waitReady(10*time.Second, ready); err != nil {
		t.Fatal(err)
	}
	if code := p.stop(50 * time.Millisecond); code != 128+9 {
		t.Errorf("code = %d, want 137", code)
	}
}
