package serving_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/serving"
)

// TestHealthWarnsOfRoundedKeys: once a prompt has shown that the type of the cache rounds a model's keys away, /health says
// so, and what to take.
func TestHealthWarnsOfRoundedKeys(t *testing.T) {
	for _, c := range []struct {
		name  string
		mean  float64 // of two channels of the keys
		warns bool
	}{{"plain keys", 0, false}, {"large means", 300, true}} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, func(c *serving.Config) { c.Prefix = 0 })
			if err := s.model.SetCacheDType("q4_0"); err != nil {
				t.Fatal(err)
			}
			for l := range s.model.Network.Layers {
				key := s.model.Network.Layers[l].Linear(model.KProj)
				bias := make([]float64, key.Weight.Dim0())
				for i := range bias {
					if dim := s.model.Config.KV(l).Dim; i%dim == dim/2-1 || i%dim == dim-1 {
						bias[i] = c.mean
					}
				}
				key.Bias = kernels.FromF32(make([]float32, len(bias)), len(bias))
				kernels.Convert(key.Bias, kernels.FromF64(bias, len(bias)))
			}
			health := func() string {
				resp, err := http.Get(s.url + "/health")
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatal(resp.Status, err)
				}
				return string(body)
			}
			if before := health(); strings.Contains(before, "warnings") {
				t.Errorf("before any prompt: %s", before)
			}
			if _, err := s.Completions.New(t.Context(), openai.CompletionNewParams{Model: "tiny", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String(strings.Repeat("of over even each ", 12))}, MaxTokens: openai.Int(1)}); err != nil {
				t.Fatal(err)
			}
			if after := health(); strings.Contains(after, "warnings") != c.warns || c.warns && !strings.Contains(after, "--cache-dtype q4_0 rounds away") {
				t.Errorf("after a prompt: %s", after)
			}
		})
	}
}
