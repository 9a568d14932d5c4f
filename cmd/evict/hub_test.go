package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/model/hub/hubtest"
	"glimpse/model/modeltest"
)

// TestModelOfTheHub: --model org/name is downloaded once with progress on
// standard error, answers as the folder does, and is there without a network
// afterwards.
func TestModelOfTheHub(t *testing.T) {
	for _, name := range []string{"llama2", "qwen3"} { // sharded and in one file
		t.Run(name, func(t *testing.T) {
			g := modeltest.GoldenNamed(t, name)
			h := hubtest.New(t, modeltest.Files(t, g.Folder))
			h.Refs["v1/tag"] = hubtest.CommitA
			p := g.Prompts[0]
			for _, c := range []struct {
				spec, offline string
				fetches       bool
			}{{"org/tiny", "", true}, {"org/tiny@main", "1", false}, {"org/tiny@" + hubtest.CommitA, "1", false}, {"org/tiny@v1/tag", "", true}} {
				t.Setenv("HF_HUB_OFFLINE", c.offline)
				before := len(h.Requests)
				out, log, err := execute(t, "run", "--model", c.spec, "--policy", "full", "--raw", "--max-new", fmt.Sprint(len(p.Greedy)), p.Text)
				if err != nil {
					t.Fatalf("%s: %v\n%s", c.spec, err, log)
				}
				if strings.TrimRight(out, "\n") != strings.TrimRight(p.GreedyText, "\n") {
					t.Errorf("%s: printed %q, want %q", c.spec, out, p.GreedyText)
				}
				if fetched := len(h.Requests) > before; fetched != c.fetches {
					t.Errorf("%s: requests %v, want some: %t", c.spec, h.Requests[before:], c.fetches)
				}
				if first := c.spec == "org/tiny"; first != strings.Contains(log, "org/tiny@main") || first != strings.Contains(log, "B/s ") {
					t.Errorf("%s: a download is shown: want %t, log:\n%s", c.spec, first, log)
				}
			}
		})
	}
}

// TestInterruptedDownload: a stop during the download is an end by the context,
// and the next run goes on where it ended.
func TestInterruptedDownload(t *testing.T) {
	g := modeltest.GoldenNamed(t, "qwen3")
	h := hubtest.New(t, modeltest.Files(t, g.Folder))
	const weights, sent = "model.safetensors", 100_000
	ctx, cancel := context.WithCancel(t.Context())
	h.Serve = func(w http.ResponseWriter, r *http.Request, name string, data []byte) bool {
		if name != weights || r.Header.Get("Range") != "" {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:sent])
		w.(http.Flusher).Flush()
		part := filepath.Join(h.Home, "hub", "models--org--tiny", "blobs", hubtest.ETag(name, data)+".incomplete")
		modeltest.Eventually(t, "the first bytes are stored", func() bool {
			info, err := os.Stat(part)
			return err == nil && info.Size() == sent
		})
		cancel()
		<-r.Context().Done()
		return true
	}
	run := func(ctx context.Context) (string, error) {
		out, _, err := executeContext(t, ctx, "run", "--model", "org/tiny", "--policy", "full", "--raw", "--max-new", "16", g.Prompts[0].Text)
		return out, err
	}
	if out, err := run(ctx); !errors.Is(err, context.Canceled) || out != "" {
		t.Fatalf("printed %q, error %v, want context.Canceled", out, err)
	}
	out, err := run(t.Context())
	if err != nil || strings.TrimRight(out, "\n") != strings.TrimRight(g.Prompts[0].GreedyText, "\n") {
		t.Errorf("printed %q (%v), want %q", out, err, g.Prompts[0].GreedyText)
	}
	if n := h.Count(fmt.Sprintf("GET storage /%s/%s bytes=%d-", hubtest.CommitA, weights, sent)); n != 1 {
		t.Errorf("requests %q, want one from byte %d", h.Requests, sent)
	}
}

// TestModelNames: what is neither a folder nor a model of the hub is refused with
// both said.
func TestModelNames(t *testing.T) {
	h := hubtest.New(t, map[string][]byte{"config.json": []byte("{}"), "README.md": nil})
	for name, c := range map[string]struct{ spec, want string }{
		"no name":         {"nowhere", "no such folder, and no name of a Hugging Face model"},
		"no model":        {"org/other", "no such folder, and no such model at " + h.Hub.URL},
		"no revision":     {"org/tiny@v9", `no revision "v9"`},
		"no weights":      {"org/tiny", "no safetensors weights"},
		"path":            {"./org/tiny", "no such file"},
		"broken revision": {"org/tiny@..", "want a branch, a tag or a commit"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{{"run", "--model", c.spec, "hello"}, {"inspect", "--model", c.spec, "--prompt", "hello"}, {"eval", "--model", c.spec}} {
				if _, _, err := execute(t, args...); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: error %v, want it to say %q", args[0], err, c.want)
				}
			}
		})
	}
}
