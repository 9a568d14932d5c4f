package filelock_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"glimpse/internal/filelock"
)

// holdVariable makes the test binary a process that holds that lock.
const holdVariable = "GLIMPSE_TEST_HOLD_LOCK"

func TestMain(m *testing.M) {
	if path := os.Getenv(holdVariable); path != "" {
		_, free, err := filelock.TryLock(path)
		fmt.Println(free, err)
		io.Copy(io.Discard, os.Stdin) // until it is killed or let go
		return
	}
	os.Exit(m.Run())
}

// hold starts a process that takes the lock, and tells what it said.
func hold(t *testing.T, path string) (child *exec.Cmd, said string) {
	t.Helper()
	child = exec.Command(os.Args[0])
	child.Env = append(os.Environ(), holdVariable+"="+path)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		child.Process.Kill()
		child.Wait()
	})
	said, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return child, said
}

// TestTwoProcesses: while one process holds a lock no other gets it, and when it is
// killed, the next one does.
func TestTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	first, said := hold(t, path)
	if said != "true <nil>\n" {
		t.Fatalf("the first process: %q, want the lock", said)
	}
	if _, said := hold(t, path); said != "false <nil>\n" {
		t.Errorf("the second process: %q, want that another has the lock", said)
	}
	if _, free, err := filelock.TryLock(path); free || err != nil {
		t.Errorf("this process: %v, error %v, want that another has the lock", free, err)
	}
	got := make(chan error, 1)
	go func() {
		unlock, err := filelock.Lock(t.Context(), path, nil)
		if err == nil {
			unlock()
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("waiting ended with error %v while another process holds the lock", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a killed process still has the lock")
	}
}
