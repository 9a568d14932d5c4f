package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/kernels"
)

// TestMain makes the test binary the program itself, so that the script can be run
// without building anything.
func TestMain(m *testing.M) {
	if os.Getenv("GPUBENCH_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestConformStandIn is what the script runs in the place of the kernels' tests.
func TestConformStandIn(t *testing.T) {
	if os.Getenv("GPUBENCH_STANDIN") == "fail" {
		t.Error("a test that fails")
	}
}

// folder makes a folder of binaries for the script.
func folder(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, script := range map[string]string{
		"gpubench":  fmt.Sprintf("#!/bin/sh\nGPUBENCH_MAIN=yes exec %q \"$@\"\n", self),
		"cuda.test": fmt.Sprintf("#!/bin/sh\nunset GPUBENCH_MAIN\nexec %q \"$@\"\n", self),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func script(t *testing.T, args ...string) (output string, err error) {
	t.Helper()
	cmd := exec.Command("../bench_gpu.sh", args...)
	data, err := cmd.CombinedOutput()
	return string(data), err
}

// TestScript: all parts run to the end with a tiny model, and the rendered section says
// that it is no measurement, names every bar, and has every table.
func TestScript(t *testing.T) {
	if !slices.Contains(kernels.Backends.Names(), "cuda") {
		if os.Getenv("GLIMPSE_CUDA_DRIVER") != "" {
			t.Fatalf("GLIMPSE_CUDA_DRIVER cannot be used: %v", kernels.Devices().Usable())
		}
		t.Skipf("no CUDA device: %v", kernels.Devices().Usable())
	}
	out, binaries := t.TempDir(), folder(t)
	text, err := script(t, "--tiny", "--binaries", binaries, "--out", out, "--repeats", "1")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	data, err := os.ReadFile(filepath.Join(out, "gpu.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	t.Log(doc)
	for _, want := range []string{
		"**This is not hardware", "### Bars", "prefill at 64: share of the measured bf16 product", "PyTorch's time over ours",
		"LookaheadKV's overhead on the time to first token at 64", "training step over prefill at 64", "decoding at 64, budget 16: share",
		"training at 64 tokens fits", "### Ceilings", "### Operations by themselves", "| gradient of attention |", "attention of a prompt of 64: the better of FlashAttention", "### Prefill", "### Time to first token", "| lookaheadkv |", "| laq |", "### Decoding",
		"### Training step", "| weight | MB | rows: 1 | rows: 2 |", "| 48 × 32 |", "### Batches in", "| 8 + 24 | budget 8 |", "PyTorch", "Tests on this driver (cuda.test): 1 passed, 0 failed",
	} {
		if !strings.Contains(doc, want) {
			t.Errorf("the document lacks %q", want)
		}
	}
	if strings.Contains(doc, "NaN") || strings.Contains(doc, "Inf") || strings.Contains(doc, "ended with an error") {
		t.Error("the document has numbers that are none, or errors")
	}
}

// TestUnverified: where a kernel is wrong the parts go on, all results say so, and the
// script fails.
func TestUnverified(t *testing.T) {
	if !slices.Contains(kernels.Backends.Names(), "cuda") {
		t.Skipf("no CUDA device: %v", kernels.Devices().Usable())
	}
	binaries, out := folder(t), t.TempDir()
	run := func() (text, ceilings, document string, err error) {
		text, err = script(t, "--tiny", "--binaries", binaries, "--out", out, "tests", "ceilings", "render")
		for name, into := range map[string]*string{"ceilings.json": &ceilings, "gpu.md": &document} {
			data, err := os.ReadFile(filepath.Join(out, name))
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			*into = string(data)
		}
		return text, ceilings, document, err
	}
	t.Setenv("GPUBENCH_STANDIN", "fail")
	text, ceilings, document, err := run()
	if err == nil || !strings.Contains(text, "failed: tests") || !strings.Contains(text, "a test that fails") {
		t.Errorf("error %v\n%s", err, text)
	}
	if !strings.Contains(ceilings, `"unverified": "1 failed"`) || !strings.Contains(document, "**Unverified: 1 failed**") {
		t.Errorf("results %s\ndocument %s", ceilings, document)
	}
	t.Setenv("GPUBENCH_STANDIN", "")
	if text, ceilings, document, err = run(); err != nil || strings.Contains(ceilings, "unverified") || strings.Contains(document, "Unverified") {
		t.Errorf("error %v\n%s\n%s\n%s", err, text, ceilings, document)
	}
}

// TestUnknownPart: a misspelt part is an error before anything runs.
func TestUnknownPart(t *testing.T) {
	if text, err := script(t, "--binaries", folder(t), "--out", t.TempDir(), "ceilings", "prefil"); err == nil || !strings.Contains(text, "got 'prefil', want of tests") {
		t.Errorf("error %v\n%s", err, text)
	}
}
