package serving_test

import (
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"glimpse/serving"
)

// TestPrefixesOfKeys: what one key has asked shortens no prompt of another's, in memory nor from files, unless they share prefixes;
// with one key or none all is one's own.
func TestPrefixesOfKeys(t *testing.T) {
	dir := t.TempDir()
	type prompt struct {
		key    string
		cached int64
	}
	for _, c := range []struct {
		name    string
		change  func(c *serving.Config)
		prompts []prompt
	}{
		{"two keys", func(c *serving.Config) { c.Keys, c.PrefixDir = []string{"one", "two"}, dir }, []prompt{{"one", 0}, {"two", 0}, {"one", 384}, {"two", 384}}},
		{"from files", func(c *serving.Config) { c.Keys, c.PrefixDir = []string{"two", "three", "one"}, dir }, []prompt{{"three", 0}, {"one", 384}, {"two", 384}}},
		{"shared", func(c *serving.Config) { c.Keys, c.SharedPrefixes = []string{"one", "two"}, true }, []prompt{{"one", 0}, {"two", 384}}},
		{"one key", func(c *serving.Config) { c.Keys = []string{"one"} }, []prompt{{"one", 0}, {"one", 384}}},
		{"no key", nil, []prompt{{"any", 0}, {"other", 384}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, func(config *serving.Config) {
				config.PrefixDirSize = 1 << 30
				if c.change != nil {
					c.change(config)
				}
			})
			tokens := s.document(t, 450, 5)
			for i, p := range c.prompts {
				got, err := s.Completions.New(t.Context(), openai.CompletionNewParams{Model: "tiny", Prompt: ids(tokens), MaxTokens: openai.Int(1)}, option.WithAPIKey(p.key))
				if err != nil {
					t.Fatal(err)
				}
				if n := got.Usage.PromptTokensDetails.CachedTokens; n != p.cached {
					t.Errorf("prompt %d, key %q: %d cached tokens, want %d", i, p.key, n, p.cached)
				}
			}
		})
	}
}
