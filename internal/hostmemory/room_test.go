package hostmemory

import (
	"os"
	"path/filepath"
	"testing"
)

const gib = 1 << 30

// The files of a machine of 64 GiB, 48 GiB of which are free, and its mounts of control groups.
const (
	meminfo    = "MemTotal:       67108864 kB\nMemFree:         1048576 kB\nMemAvailable:   50331648 kB\nHugePages_Total:       0\n"
	mountV1    = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
	mountV2    = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	mountBoth  = mountV1 + "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
	noLimitV1  = "9223372036854771712\n"
	noLimit64K = "9223372036854710272\n" // pages of 64 KiB
	noLimitOld = "18446744073709551615\n"
)

// TestFind: the smaller of what the machine has and what control groups leave, of both versions.
func TestFind(t *testing.T) {
	const v1, v2 = "sys/fs/cgroup/memory/", "sys/fs/cgroup/"
	machine := Room{48 * gib, 64 * gib, ""}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  Room
	}{
		{"no /proc", nil, Room{}},
		{"no groups", map[string]string{"proc/meminfo": meminfo}, machine},
		{"v2, a container in a namespace of its own", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2,
			v2 + "memory.max": "8589934592\n", v2 + "memory.high": "max\n", v2 + "memory.current": "3221225472\n",
			v2 + "memory.stat": "anon 1\nfile 2147483648\ninactive_file 1073741824\nactive_file 0\n",
		}, Room{6 * gib, 8 * gib, "/sys/fs/cgroup/memory.max"}},
		{"v2, the page cache is free whether it is active or not", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2,
			v2 + "memory.max": "8589934592\n", v2 + "memory.current": "6442450944\n", v2 + "memory.stat": "inactive_file 1073741824\nactive_file 4294967296\n",
		}, Room{7 * gib, 8 * gib, "/sys/fs/cgroup/memory.max"}},
		{"v2, high below max", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2,
			v2 + "memory.max": "8589934592\n", v2 + "memory.high": "4294967296\n", v2 + "memory.current": "1073741824\n",
		}, Room{3 * gib, 4 * gib, "/sys/fs/cgroup/memory.high"}},
		{"v2, a group above is tighter, with the use of others", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/jobs.slice/run.scope\n", "proc/self/mountinfo": mountV2,
			v2 + "jobs.slice/run.scope/memory.max": "17179869184\n", v2 + "jobs.slice/run.scope/memory.current": "1073741824\n",
			v2 + "jobs.slice/memory.max": "21474836480\n", v2 + "jobs.slice/memory.current": "19327352832\n",
		}, Room{2 * gib, 20 * gib, "/sys/fs/cgroup/jobs.slice/memory.max"}},
		{"v2, limits of groups beside it are not its own", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": mountV2,
			v2 + "a/memory.max": "max\n", v2 + "a/memory.current": "1\n", v2 + "a/c/memory.max": "4096\n", v2 + "a/c/memory.current": "1\n",
		}, machine},
		{"v2, a container whose group is mounted at the place of the root", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/docker/0a1b\n",
			"proc/self/mountinfo": "31 23 0:28 /docker/0a1b /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n",
			v2 + "memory.max":     "2147483648\n", v2 + "memory.current": "1073741824\n",
		}, Room{1 * gib, 2 * gib, "/sys/fs/cgroup/memory.max"}},
		{"v2, out of the namespace", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/../init\n", "proc/self/mountinfo": mountV2,
			v2 + "memory.max": "2147483648\n", v2 + "memory.current": "1073741824\n",
		}, Room{1 * gib, 2 * gib, "/sys/fs/cgroup/memory.max"}},
		{"v2, another group mounted for who watches does not count", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2 + "50 23 0:28 /other /mnt/other ro - cgroup2 cgroup rw\n",
			"mnt/other/memory.max": "4096\n", "mnt/other/memory.current": "1\n",
		}, machine},
		{"v2, a place with a blank", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/x\n", "proc/self/mountinfo": `31 23 0:28 / /the\040groups rw - cgroup2 cgroup2 rw` + "\n",
			"the groups/x/memory.max": "2147483648\n", "the groups/x/memory.current": "0\n",
		}, Room{2 * gib, 2 * gib, "/the groups/x/memory.max"}},
		{"v2, full", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2,
			v2 + "memory.max": "1073741824\n", v2 + "memory.current": "1073745920\n",
		}, Room{1, 1 * gib, "/sys/fs/cgroup/memory.max"}},
		{"v2, more than the machine has", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2,
			v2 + "memory.max": "1099511627776\n", v2 + "memory.current": "1\n",
		}, machine},
		{"v1, no limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/a/b\n3:cpuset:/\n0::/\n", "proc/self/mountinfo": mountV1,
			v1 + "a/b/memory.limit_in_bytes": noLimitV1, v1 + "a/b/memory.usage_in_bytes": "1\n", v1 + "a/b/memory.stat": "hierarchical_memory_limit " + noLimitV1,
			v1 + "a/memory.limit_in_bytes": noLimit64K, v1 + "a/memory.usage_in_bytes": "1\n", v1 + "memory.limit_in_bytes": noLimitOld, v1 + "memory.usage_in_bytes": "1\n",
		}, machine},
		{"v1, no limit, where the machine does not tell", map[string]string{
			"proc/self/cgroup": "4:memory:/\n", "proc/self/mountinfo": mountV1, v1 + "memory.limit_in_bytes": noLimitV1, v1 + "memory.usage_in_bytes": "1\n",
		}, Room{}},
		{"v1, a group above, whose page cache counts with that of groups below", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "11:hugetlb:/\n4:cpu,memory:/a/b\n", "proc/self/mountinfo": mountV1,
			v1 + "a/b/memory.limit_in_bytes": noLimitV1, v1 + "a/b/memory.usage_in_bytes": "1\n",
			v1 + "a/memory.limit_in_bytes": "8589934592\n", v1 + "a/memory.usage_in_bytes": "4294967296\n",
			v1 + "a/memory.stat": "inactive_file 5\ntotal_inactive_file 1073741824\ntotal_active_file 0\nhierarchical_memory_limit 8589934592\n",
		}, Room{5 * gib, 8 * gib, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"}},
		{"v1, a group above that is not seen", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/docker/0a1b\n",
			"proc/self/mountinfo":        "35 31 0:32 /docker/0a1b /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			v1 + "memory.limit_in_bytes": noLimitV1,
			v1 + "memory.usage_in_bytes": "1073741824\n",
			v1 + "memory.stat":           "hierarchical_memory_limit 4294967296\n",
			v1 + "memory.use_hierarchy":  "1\n",
		}, Room{3 * gib, 4 * gib, "/sys/fs/cgroup/memory/memory.stat"}},
		{"v1, a group above that does not count those below", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/a\n", "proc/self/mountinfo": mountV1,
			v1 + "a/memory.limit_in_bytes": "8589934592\n", v1 + "a/memory.usage_in_bytes": "0\n",
			v1 + "memory.limit_in_bytes": "4096\n", v1 + "memory.usage_in_bytes": "0\n", v1 + "memory.use_hierarchy": "0\n",
		}, Room{8 * gib, 8 * gib, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"}},
		{"hybrid, the memory in v1", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/a\n0::/a\n", "proc/self/mountinfo": mountBoth,
			v1 + "a/memory.limit_in_bytes": "8589934592\n", v1 + "a/memory.usage_in_bytes": "4294967296\n", v2 + "unified/a/cgroup.procs": "1\n",
		}, Room{4 * gib, 8 * gib, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"}},
		{"hybrid, the memory in v2", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "3:cpu:/a\n0::/a\n", "proc/self/mountinfo": mountBoth,
			v2 + "unified/a/memory.max": "8589934592\n", v2 + "unified/a/memory.current": "4294967296\n",
		}, Room{4 * gib, 8 * gib, "/sys/fs/cgroup/unified/a/memory.max"}},
		{"damaged numbers", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2,
			v2 + "memory.max": "8 GiB\n", v2 + "memory.high": "-1\n", v2 + "memory.current": "1\n",
		}, machine},
		{"no use is told", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2, v2 + "memory.max": "8589934592\n", v2 + "memory.current": "",
		}, machine},
		{"a statistic that is larger than the use", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2, v2 + "memory.max": "8589934592\n", v2 + "memory.current": "5\n",
			v2 + "memory.stat": "inactive_file 18446744073709551615\nactive_file 18446744073709551615\nno\n\n",
		}, Room{8 * gib, 8 * gib, "/sys/fs/cgroup/memory.max"}},
		{"damaged lists", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0\n0:x\n\n:::\n4:memory:relative\n0::/a/../../b\n0::/", "proc/self/mountinfo": "x\n - \n1 2 3 - cgroup2\n\x00\n1 2 3 / - cgroup2 a rw",
		}, machine},
		{"a damaged meminfo", map[string]string{
			"proc/meminfo": "MemAvailable: many kB\nMemTotal: 99999999999999999999 kB\nMemAvailable:", "proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2,
			v2 + "memory.max": "2147483648\n", v2 + "memory.current": "0\n",
		}, Room{2 * gib, 2 * gib, "/sys/fs/cgroup/memory.max"}},
		{"nothing is free", map[string]string{"proc/meminfo": "MemTotal: 1024 kB\nMemAvailable: 0 kB\n"}, Room{1, 1 << 20, ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range c.files {
				name = filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := findIn(root); got != c.want {
				t.Errorf("got %+v (%v), want %+v (%v)", got, got, c.want, c.want)
			}
		})
	}
}

func TestRoomInWords(t *testing.T) {
	for want, r := range map[string]Room{
		"48.0 GiB free of 64.0 GiB":                                 {48 * gib, 64 * gib, ""},
		"6.0 GiB free of 8.0 GiB (limit /sys/fs/cgroup/memory.max)": {6 * gib, 8 * gib, "/sys/fs/cgroup/memory.max"},
	} {
		if got := r.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
