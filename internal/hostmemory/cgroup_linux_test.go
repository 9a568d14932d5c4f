package hostmemory

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const childVariable = "GLIMPSE_HOSTMEMORY_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		r := Find()
		fmt.Println(r.Available, r.Limit, r.File)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestFindInAGroup makes a control group with a limit, of whichever version this machine has the memory in, and asks a
// program that runs in it, and one that runs in a group below.
func TestFindInAGroup(t *testing.T) {
	const limit = 96 << 20
	parent, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(parent, file)); err != nil {
		parent, file = "/sys/fs/cgroup", "memory.max"
	}
	dir, err := os.MkdirTemp(parent, "glimpse-test-")
	if err != nil {
		t.Skip("this user may make no control group:", err)
	}
	defer os.Remove(dir)
	if err := os.WriteFile(filepath.Join(dir, file), []byte(fmt.Sprint(limit)), 0o644); err != nil {
		t.Skip("the memory of groups cannot be limited here:", err)
	}
	inner := filepath.Join(dir, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(inner)
	for name, group := range map[string]string{"in the group": dir, "in one below": inner} {
		c := exec.Command("/bin/sh", "-c", `echo $$ >"$1/cgroup.procs" && exec "$0"`, os.Args[0], group)
		c.Env = append(os.Environ(), childVariable+"=1")
		c.Stderr = os.Stderr
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		var available, told int64
		var by string
		fmt.Sscan(strings.TrimSpace(string(out)), &available, &told, &by)
		// The program itself takes a few MiB.
		if told != limit || available <= limit/2 || available > limit || !strings.HasPrefix(by, dir) {
			t.Errorf("%s: got %s, want at most %d of %d by %s", name, strings.TrimSpace(string(out)), limit, limit, dir)
		}
	}
}
