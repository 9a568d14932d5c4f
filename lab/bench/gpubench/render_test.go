package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write stores a part's result.
func write(t *testing.T, dir, part string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, part+".json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestBars: results are held against the goals by hand-made numbers that meet some and
// miss others.
func TestBars(t *testing.T) {
	dir := t.TempDir()
	base := result{Hardware: true, Device: "a card", Model: full.name, Date: "2026-01-02"}
	with := func(part string, change func(r *result)) {
		r := base
		r.Part = part
		change(&r)
		write(t, dir, part, r)
	}
	with("ceilings", func(r *result) { r.Ceilings = &ceilings{CopyGBs: 2000, ProductTFLOPs: 500, Product: 8192} })
	with("prefill", func(r *result) {
		r.Prefill = []prefillRow{{Tokens: 4096, Millis: 1, TFLOPs: 1}, {Tokens: 8192, Millis: 200, TFLOPs: 480}, {Tokens: 16384, Millis: 500, TFLOPs: 200}}
	})
	with("ttft", func(r *result) {
		r.TTFT = []ttftRow{{Tokens: 8192, Policy: "lookaheadkv", Over: 0.015}, {Tokens: 32768, Policy: "lookaheadkv", Over: 0.015}}
	})
	with("decode", func(r *result) {
		r.Decode = []decodeRow{{Context: 8192, Rate: 100, Bytes: 18e9}, {Context: 8192, Budget: 128, Rate: 100, Bytes: 15e9}}
	})
	with("train", func(r *result) {
		r.Train = []trainRow{{Prompt: 8192, Response: 512, Prefill: 200, Step: 220}, {Prompt: 16384, Response: 512, Prefill: 500, Step: 550}}
	})
	with("kernels", func(r *result) {
		r.Kernels = []kernelRow{{Operation: "prompt attention", Shape: "8192 rows", Prompt: 8192, Millis: 1.6}, {Operation: "prompt attention", Prompt: 16384, Millis: 6}, {Operation: "RoPE", Millis: 1}}
	})
	with("train24", func(r *result) { r.Limited = &trainRow{Prompt: 16384, Peak: 23e9, Limit: 24e9} })
	write(t, dir, "pytorch", map[string]any{
		"version": "2", "hardware": true, "ceilings": ceilings{CopyGBs: 1900, ProductTFLOPs: 600},
		"prefill":   []map[string]any{{"tokens": 8192, "ms": 300}, {"tokens": 16384, "ms": 400}},
		"attention": []map[string]any{{"tokens": 8192, "kernel": "FLASH_ATTENTION", "ms": 2}, {"tokens": 8192, "kernel": "CUDNN_ATTENTION", "ms": 1.5}, {"tokens": 16384, "kernel": "CUDNN_ATTENTION", "error": "no kernel"}},
		"train":     []map[string]any{{"prompt": 8192, "way": "shared", "ms": 500}, {"prompt": 8192, "way": "passes", "ms": 450}, {"prompt": 16384, "way": "passes", "error": "out of memory"}},
	})
	r, err := readReport(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, b := range r.bars() {
		got[b.what] = b.want + " " + b.got + " " + b.verdict()
	}
	for what, want := range map[string]string{ // of the larger ceiling, 600
		"prefill at 8192: share of the measured bf16 product":                                       "≥ 60.0% 80.0% met",
		"prefill at 8192: PyTorch's time over ours":                                                 "≥ 1.00 1.50 met",
		"prefill at 16384: share of the measured bf16 product":                                      "≥ 60.0% 33.3% **missed**",
		"prefill at 16384: PyTorch's time over ours":                                                "≥ 1.00 0.80 **missed**",
		"attention of a prompt of 8192: the better of FlashAttention's and cuDNN's time over ours":  "≥ 0.91 0.94 met",
		"attention of a prompt of 16384: the better of FlashAttention's and cuDNN's time over ours": "≥ 0.91 0.00 not measured",
		"LookaheadKV's overhead on the time to first token at 8192":                                 "≤ 2.00% 1.50% met",
		"LookaheadKV's overhead on the time to first token at 32768":                                "≤ 1.00% 1.50% **missed**",
		"training step over prefill at 8192, 512 response tokens":                                   "≤ 1.200 1.100 met",
		"training step over prefill at 16384, 512 response tokens":                                  "≤ 1.150 1.100 met",
		"training step at 8192: PyTorch's time over ours":                                           "≥ 2.00 2.05 met",
		"training step at 16384: PyTorch's time over ours":                                          "≥ 2.00 0.00 not measured",
		"decoding at 8192, full cache: share of reading weights and cache once":                     "≥ 80.0% 90.0% met",
		"decoding at 8192, budget 128: share of reading weights and cache once":                     "≥ 80.0% 75.0% **missed**",
		"training at 16384 tokens fits in 24GB":                                                     "it runs 23.00 GB at most met",
	} {
		if got[what] != want {
			t.Errorf("%s: %q, want %q", what, got[what], want)
		}
		delete(got, what)
	}
	if len(got) > 0 {
		t.Errorf("other bars: %v", got)
	}
	text, err := r.markdown()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "9 met, 4 missed, 2 not measured.") || strings.Contains(string(text), "not hardware") {
		t.Errorf("%s", text)
	}
}

// TestReplaceSection: the section changes and nothing else does.
func TestReplaceSection(t *testing.T) {
	got, err := replaceSection([]byte("a\n"+begin+"\nold\n"+end+"\nb\n"), []byte("new\n"))
	if want := "a\n" + begin + "\nnew\n" + end + "\nb\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if _, err := replaceSection([]byte("a\n"), []byte("new\n")); err == nil {
		t.Error("no error without the lines")
	}
}
