package hostmemory

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// noLimit is more than any machine has, and can be added to itself. Version 1 of control groups writes about twice as much
// where there is no limit, which number depends on the kernel.
const noLimit = 1<<62 - 1

// group is a control group that the process runs in, or one above it. Sources: Linux,
// Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst; proc(5) and cgroups(7) for where groups lie.
type group struct {
	root   string // of the machine's files
	folder string // as the machine names it
	v1     bool
}

// groupsOf are the groups that may limit the memory of the process, those that it runs in and all above that can be seen.
// Both versions may be mounted (hybrid): only one of them has the memory then, and the other one no such files.
func groupsOf(root string) (all []group) {
	membership, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(membership)) {
		fields := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3) // number:controllers:path
		if len(fields) != 3 || !strings.HasPrefix(fields[2], "/") {
			continue
		}
		v1 := fields[0] != "0"
		if v1 && !slices.Contains(strings.Split(fields[1], ","), "memory") {
			continue
		}
		var inside, outside []group
		for line := range strings.Lines(string(mounts)) {
			top, point, ok := mountOf(line, v1)
			if !ok {
				continue
			}
			below, ok := pathBelow(fields[2], top)
			if !ok {
				outside = append(outside, group{root, point, v1})
				continue
			}
			inside = append(inside, group{root, path.Join(point, below), v1}.upTo(point)...)
		}
		if inside == nil { // a container may see its group at another place than where it runs
			inside = outside
		}
		all = append(all, inside...)
	}
	return all
}

// upTo is the group and those above it, up to where they are mounted. Old kernels may be told not to count a group's memory
// in the one above.
func (g group) upTo(point string) (all []group) {
	for {
		all = append(all, g)
		if g.folder == point {
			return all
		}
		g.folder = path.Dir(g.folder)
		if n, ok := g.readNumber("memory.use_hierarchy"); ok && n == 0 {
			return all
		}
	}
}

// mountOf reads a line of mountinfo: which group is mounted where, of the version that is wanted.
func mountOf(line string, v1 bool) (top, point string, ok bool) {
	// 36 35 98:0 /top /point rw,noatime master:1 - cgroup cgroup rw,memory
	mount, kind, ok := strings.Cut(strings.TrimRight(line, "\n"), " - ")
	before, behind := strings.Fields(mount), strings.Fields(kind)
	if !ok || len(before) < 5 || len(behind) < 3 {
		return "", "", false
	}
	if v1 {
		ok = behind[0] == "cgroup" && slices.Contains(strings.Split(behind[2], ","), "memory")
	} else {
		ok = behind[0] == "cgroup2"
	}
	return unescape(before[3]), path.Clean(unescape(before[4])), ok
}

// unescape reads the octal numbers that mountinfo has for blanks and backslashes.
func unescape(text string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(text)
}

// pathBelow is a group's path below one above it.
func pathBelow(group, top string) (below string, ok bool) {
	if slices.Contains(strings.Split(group, "/"), "..") { // outside of the process's namespace of groups
		return "", false
	}
	if top == "/" {
		return group, true
	}
	below, ok = strings.CutPrefix(group, top)
	return below, ok && (below == "" || below[0] == '/')
}

// bounds are the limits of a group, each with what it leaves. Of files that are missing or damaged there are none.
func (g group) bounds() (all []Room) {
	type limit struct {
		file  string
		bytes int64
	}
	var limits []limit
	add := func(file string, n int64, ok bool) {
		if ok && n < noLimit {
			limits = append(limits, limit{file, n})
		}
	}
	usage, files, stat := "memory.current", [2]string{"inactive_file", "active_file"}, g.stat()
	if g.v1 {
		usage, files = "memory.usage_in_bytes", [2]string{"total_inactive_file", "total_active_file"}
		n, ok := g.readNumber("memory.limit_in_bytes")
		add("memory.limit_in_bytes", n, ok)
		// Of groups above that cannot be seen, with this group's use in the place of theirs.
		n, ok = stat["hierarchical_memory_limit"]
		add("memory.stat", n, ok)
	} else {
		for _, file := range []string{"memory.max", "memory.high"} { // above high the group is slowed down to a crawl
			n, ok := g.readNumber(file)
			add(file, n, ok)
		}
	}
	used, ok := g.readNumber(usage)
	if !ok {
		return nil
	}
	// The page cache is given up before anything is killed, as MemAvailable counts it.
	used -= min(used, stat[files[0]]+stat[files[1]])
	for _, l := range limits {
		all = append(all, Room{Available: max(1, l.bytes-used), Limit: l.bytes, File: path.Join(g.folder, l.file)})
	}
	return all
}

// readNumber reads a file of one number; "max", and what no machine has, is noLimit.
func (g group) readNumber(file string) (n int64, ok bool) {
	raw, err := os.ReadFile(filepath.Join(g.root, g.folder, file))
	if err != nil {
		return 0, false
	}
	return readBytes(strings.TrimSpace(string(raw)))
}

func readBytes(text string) (n int64, ok bool) {
	if text == "max" {
		return noLimit, true
	}
	u, err := strconv.ParseUint(text, 10, 64)
	return int64(min(u, noLimit)), err == nil
}

// stat reads memory.stat, whose numbers count the groups below, in version 1 those whose names begin with total_ do.
func (g group) stat() map[string]int64 {
	out := make(map[string]int64)
	raw, err := os.ReadFile(filepath.Join(g.root, g.folder, "memory.stat"))
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(raw)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if n, ok := readBytes(value); ok {
				out[name] = n
			}
		}
	}
	return out
}
