package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"glimpse/internal/simd"
	"glimpse/serving"
)

// TestServeSaysWhatItDoes: the first lines of the log say what is lossy and from which length on, or what would evict; how
// much memory is taken, of what and why; how each is changed; and where the server is, by an address that can be opened.
func TestServeSaysWhatItDoes(t *testing.T) {
	cert, key, _ := certificate(t)
	for _, c := range []struct {
		name  string
		args  []string
		first string   // what the first line has
		all   []string // what the log has
		not   string
	}{
		{"lossless unless asked", nil, `level=INFO msg="lossless: every session keeps its whole cache" policy=full evict="--policy lookaheadkv --budget 50%" why="an adapter for the model comes with this program"`,
			[]string{`msg=serving address=127.0.0.1:`, ` policy=full`}, "lossy"},
		{"without an adapter", []string{"--model", "../../model/testdata/golden/llama3.1"}, "", []string{`evict="--policy snapkv --budget 50%" why="there is no adapter for the model"`}, "lossy"},
		{"an adapter of the operator's", []string{"--adapter", "shipped"}, `evict="--policy lookaheadkv --budget 50%" why="--adapter has one for the model"`, nil, "lossy"},
		{"full by name", []string{"--policy", "full", "--budget", "10%"}, `evict="--policy lookaheadkv --budget 10%"`, nil, "lossy"},
		{"lossy", []string{"--policy", "snapkv"}, `level=WARN msg="lossy: a part of every prompt's cache is evicted or not read, so that answers may differ from those of the full cache" policy=snapkv budget=50% from_tokens=256 change="--policy full keeps everything`,
			[]string{" policy=snapkv heads=learned"}, "lossless"},
		{"lossy, equal heads", []string{"--policy", "snapkv", "--heads", "equal"}, "lossy", []string{" policy=snapkv heads=equal"}, "lossless"},
		{"lossy, an adapter's", []string{"--policy", "lookaheadkv", "--budget", "25%", "--full-below", "0"}, `policy=lookaheadkv budget=25% from_tokens=0 `, []string{" policy=lookaheadkv/shipped heads=learned"}, "lossless"},
		{"flags of evicted caches", []string{"--verify-share", "1", "--adapter", "shipped", "--shadow", "judgeq/shipped", "--full-below", "9"}, "lossless",
			[]string{`msg="nothing comes of these flags but for requests that name a policy: without --policy nothing is evicted" flags="--full-below, --verify-share, --shadow"`}, "lossy"},
		{"flags of evicted caches, by a policy", []string{"--verify-share", "1", "--policy", "snapkv"}, "lossy", nil, "nothing comes"},
		{"memory that was asked for", nil, "", []string{`msg=memory sessions_and_shared_prefixes="512.0 MiB" shared_prefixes="128.0 MiB" why="as --memory says" change="--memory SIZE --prefix-cache SIZE"`}, ""},
		{"TLS", []string{"--tls-cert", cert, "--tls-key", key}, "", []string{` url=https://127.0.0.1:PORT api=https://127.0.0.1:PORT/v1 `}, ""},
		{"all addresses", []string{"--listen", "0.0.0.0:0"}, "everybody who reaches the address", []string{` url=http://localhost:PORT api=http://localhost:PORT/v1 `}, ""},
		{"a port of all addresses", []string{"--listen", ":0"}, "", []string{` address=[::]:PORT url=http://localhost:PORT `}, ""},
		{"what it computes on", nil, "", []string{` device="cpu ` + simd.Arithmetic(simd.Rounded) + `" `}, "exact"},
		{"in float32", []string{"--exact"}, "", []string{` device="cpu ` + simd.Arithmetic(simd.Float32) + `" `}, ""},
		{"as JSON", []string{"--log-json"}, `"msg":"lossless: every session keeps its whole cache"`, []string{`"url":"http://127.0.0.1:PORT"`}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, url, log := serveProgram(t, c.args...)
			text := log.String()
			first, _, _ := strings.Cut(text, "\n")
			if !strings.Contains(first, c.first) {
				t.Errorf("the first line is %q, want %q", first, c.first)
			}
			_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
			if err != nil || port == "0" {
				t.Fatalf("%s: %v", url, err)
			}
			for _, want := range c.all {
				if want = strings.ReplaceAll(want, "PORT", port); !strings.Contains(text, want) {
					t.Errorf("the log lacks %q: %s", want, text)
				}
			}
			if c.not != "" && strings.Contains(text, c.not) {
				t.Errorf("the log has %q: %s", c.not, text)
			}
			if told := regexp.MustCompile(`url=(http://\S+)`).FindStringSubmatch(text); told != nil {
				r, err := http.Get(told[1] + "/health")
				if err != nil || r.StatusCode != http.StatusOK {
					t.Errorf("%s: %v, %v", told[1], r, err)
				}
			}
		})
	}
}

// TestURLOf: addresses that the system of a test need not have.
func TestURLOf(t *testing.T) {
	for want, c := range map[string]struct {
		ip  string
		tls bool
	}{
		"http://[::1]:8080": {"::1", false}, "https://[2001:db8::1]:8080": {"2001:db8::1", true}, "http://192.0.2.1:8080": {"192.0.2.1", false},
		"https://localhost:8080": {"::", true}, "http://127.0.0.1:8080": {"0.0.0.0", false},
	} {
		if got := urlOf(&net.TCPAddr{IP: net.ParseIP(c.ip), Port: 8080}, c.tls); got != want {
			t.Errorf("%s: got %s, want %s", c.ip, got, want)
		}
	}
}

// TestServeInAContainer: in a control group the server takes what that leaves beside the weights, less a tenth, and says so.
func TestServeInAContainer(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("control groups are Linux's")
	}
	const limit = 1 << 30
	parent, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(parent, file)); err != nil {
		parent, file = "/sys/fs/cgroup", "memory.max"
	}
	dir, err := os.MkdirTemp(parent, "glimpse-test-")
	if err != nil {
		t.Skip("this user may make no control group:", err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := os.WriteFile(filepath.Join(dir, file), []byte(fmt.Sprint(limit)), 0o644); err != nil {
		t.Skip("the memory of groups cannot be limited here:", err)
	}
	_, _, log := startServer(t, serverCommand("/bin/sh", "-c", `echo $$ >"$1/cgroup.procs" && shift && exec "$0" "$@"`, os.Args[0], dir, "serve", "--listen", "127.0.0.1:0"))
	told := regexp.MustCompile(`sessions_and_shared_prefixes="([0-9.]+) MiB" .*why="[0-9.]+ MiB free of 1.0 GiB \(limit ` + dir + `\S+\), .*less a tenth"`).FindStringSubmatch(log.String())
	if told == nil {
		t.Fatalf("the log says %s", log)
	}
	var mib float64
	fmt.Sscan(told[1], &mib)
	config := serving.Config{Memory: int64(mib) << 20, MaxBody: 8 << 20, Rows: 8, Queue: 1024}
	if all := config.Memory + config.Beside() + leastGarbage; mib < 400 || all > limit {
		t.Errorf("took %v MiB of 1 GiB, which comes to %d bytes in all", mib, all)
	}
}
