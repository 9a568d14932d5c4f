package suggest

import "testing"

func TestNearest(t *testing.T) {
	policies := []string{"adakv", "full", "h2o", "laq", "lookaheadkv", "pyramidkv", "snapkv", "streamingllm", "tova"}
	for written, want := range map[string]string{
		"snapkv": "snapkv", "snapvk": "snapkv", "SnapKV": "snapkv", "snap-kv": "snapkv", "snap": "snapkv",
		"lookahead_kv": "lookaheadkv", "lokahead": "lookaheadkv", "h20": "h2o", "streaming-llm": "streamingllm",
		"toav": "tova", "x": "", "": "", "quantise": "", "kv": "",
	} {
		if got, ok := Nearest(written, policies); got != want || ok != (want != "") {
			t.Errorf("Nearest(%q) = %q, %v, want %q", written, got, ok, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, x := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"copy", "coppy", 1}, {"snapvk", "snapkv", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 1}, {"ca", "abc", 3}, {"abcd", "badc", 2}} {
		if got := Distance(x.a, x.b); got != x.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", x.a, x.b, got, x.want)
		}
		if got := Distance(x.b, x.a); got != x.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", x.b, x.a, got, x.want)
		}
	}
}

func TestUnknown(t *testing.T) {
	if got, want := Unknown("task", "coppy", []string{"chain", "copy"}).Error(), `unknown task "coppy", want one of: chain, copy; did you mean "copy"?`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := Unknown("task", "zebra", []string{"chain", "copy"}).Error(), `unknown task "zebra", want one of: chain, copy`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
