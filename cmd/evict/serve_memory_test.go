package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"glimpse/internal/bytesize"
	"glimpse/serving"
)

// TestServeMemoryIsBounded measures the resident memory of the program, which grows by no more than docs/serving.md says:
// --memory, what the server takes beside it, and garbage.
func TestServeMemoryIsBounded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("resident memory is read as Linux tells it")
	}
	words := strings.Repeat("never karl lantern ", 7_000_000/19)
	chat := func(words string, more string) string {
		return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"max_tokens":64%s}`, words, more)
	}
	const kept = `,"ignore_eos":true,"eviction":{"policy":"full"}`
	for i, c := range []struct {
		name   string
		memory int64
		path   string
		bodies []string
		status int
	}{
		{"bodies that are worked on", 16 << 20, "/v1/chat/completions", same(24, chat(words, "")), http.StatusBadRequest},
		{"bodies of tokens", 16 << 20, "/v1/completions", same(8, `{"prompt":[`+strings.Repeat("455,", 1_300_000)+`5]}`), http.StatusBadRequest},
		{"bodies of lists", 16 << 20, "/v1/chat/completions", same(8, `{"messages":[{"role":"user","content":"never"}],"tools":[`+strings.Repeat("[],", 150_000)+`[]]}`), http.StatusBadRequest},
		{"bodies of more values than memory", 16 << 20, "/v1/completions", same(8, `{"prompt":[`+strings.Repeat("5,", 3_500_000)+`5]}`), http.StatusRequestEntityTooLarge},
		{"bodies that remain while they are answered", 64 << 20, "/v1/chat/completions", same(24, chat("never karl lantern", `,"ignore_eos":true,"metadata":{"x":"`+words+`"}`)), http.StatusOK},
		{"prompts", 64 << 20, "/v1/chat/completions", same(14, chat(words[:19*200], kept)), http.StatusOK},
	} {
		if testing.Short() && i%2 == 1 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			p, url, _ := serveProgram(t, "--memory", bytesize.Size(c.memory).String(), "--queue", "32", "--max-num-seqs", "4")
			config := serving.Config{Memory: c.memory, MaxBody: 8 << 20, Rows: 4, Queue: 32}
			post := func(body string) int {
				r, err := http.Post(url+c.path, "application/json", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return 0
				}
				defer r.Body.Close()
				io.Copy(io.Discard, r.Body)
				return r.StatusCode
			}
			post(`{"prompt":"never karl","messages":[{"role":"user","content":"never karl"}]}`) // what is made once
			before := peakOf(t, p.Process.Pid)
			var all sync.WaitGroup
			for _, body := range c.bodies {
				all.Go(func() {
					if status := post(body); status != c.status && status != http.StatusServiceUnavailable { // of a slow machine, where others take too long
						t.Errorf("status %d, want %d", status, c.status)
					}
				})
			}
			all.Wait()
			grown, most := peakOf(t, p.Process.Pid)-before, config.Memory+config.Beside()+leastGarbage
			t.Logf("grown by %s of %s", bytesize.FormatMemory(grown), bytesize.FormatMemory(most))
			if grown > most {
				t.Errorf("the program has grown by %s, want at most %s", bytesize.FormatMemory(grown), bytesize.FormatMemory(most))
			}
		})
	}
}

func same(n int, body string) (all []string) {
	for range n {
		all = append(all, body)
	}
	return all
}

// peakOf is the most resident memory that a process has had.
func peakOf(t *testing.T, pid int) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var kib int64
	if m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(raw); m == nil || json.Unmarshal(m[1], &kib) != nil {
		t.Fatalf("no peak in %s", raw)
	}
	return kib << 10
}
