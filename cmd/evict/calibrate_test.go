package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"glimpse/checkpoints"
	"glimpse/datasets"
)

// prompts writes prompts of the built-in model's task section, and returns their ids. Every document has as many prompts.
func prompts(t *testing.T, path string, documents, each, tokens int) (all [][]int32) {
	t.Helper()
	var rows bytes.Buffer
	stream, err := datasets.NewStream([]string{"section"}, datasets.Train, tokens, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range documents * each {
		e, err := stream.At(i)
		if err != nil {
			t.Fatal(err)
		}
		row, err := json.Marshal(map[string]any{"prompt_ids": e.Prompt, "file": i / each})
		if err != nil {
			t.Fatal(err)
		}
		rows.Write(append(row, '\n'))
		all = append(all, e.Prompt)
	}
	if err := os.WriteFile(path, rows.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return all
}

// calibrated is what evict calibrate --json prints.
type calibrated struct {
	Documents int
	Lines     []struct {
		Policy, Budget string
		Mean           float64 `json:"mean_loss"`
		Bound          float64 `json:"upper_bound"`
		Certified      string
	}
	Chosen *struct{ Policy, Budget string }
}

// TestCalibrate: the whole path on the built-in model. Prompts are measured, a budget is certified, and other commands keep it. Asked for
// less than any budget keeps, it leaves no certificate. Nothing is measured again.
func TestCalibrate(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	prompts(t, in("p.jsonl"), 45, 1, 96)
	run := func(more ...string) (calibrated, string, error) {
		out, log, err := execute(t, append([]string{"calibrate", "--data", in("p.jsonl"), "--policy", "snapkv", "--budget", "20%,95%,50%", "--max-new", "8", "--out", in("run"), "--json"}, more...)...)
		var got calibrated
		if out != "" {
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
		}
		return got, log, err
	}
	got, log, err := run("--epsilon", "0.2", "--loss", "agreement")
	if err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	for _, want := range []string{"an expected loss of at most 0.2 share of the tokens", "95% confidence", "45 prompts about 45 documents", "it takes at least 19 documents", "is certified"} {
		if !strings.Contains(log, want) {
			t.Errorf("log %q does not say %q", log, want)
		}
	}
	if got.Documents != 45 || got.Chosen == nil || len(got.Lines) != 3 || got.Lines[0].Budget != "95%" || got.Lines[0].Certified != "yes" {
		t.Fatalf("got %+v", got)
	}
	c, err := checkpoints.ReadCalibration(in("run"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Budget != got.Chosen.Budget || c.Policy != "snapkv" || c.Documents != 45 || c.Epsilon != 0.2 || c.Loss != "agreement" || len(c.Data) != 1 || c.Settings["kernel"] == 0 {
		t.Errorf("calibration %+v", c)
	}
	if chart, err := os.ReadFile(in("run/calibration.svg")); err != nil || !bytes.Contains(chart, []byte("</svg>")) {
		t.Errorf("chart: %v", err)
	}
	before := content(t, in("run/predictions.jsonl"))
	if got, _, err := run("--epsilon", "0.3", "--loss", "nll", "--clip", "2", "--resume"); err != nil && !strings.Contains(err.Error(), "no budget is certified") || len(got.Lines) != 3 {
		t.Errorf("another loss of the same run: %v, %+v", err, got)
	}
	if after := content(t, in("run/predictions.jsonl")); !bytes.Equal(before, after) {
		t.Error("what is there was measured again")
	}

	if _, _, err := run("--epsilon", "0.2", "--loss", "agreement", "--resume"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		says string // of the error; "": there is none
	}{
		{"the folder", []string{"--budget", "calibrated:" + in("run")}, ""},
		{"the file", []string{"--budget", "calibrated:" + in("run/calibration.json")}, ""},
		{"with a policy", []string{"--policy", "h2o", "--budget", "calibrated:" + in("run")}, "--policy h2o with --budget calibrated"},
		{"with another option", []string{"--set", "snapkv.kernel=3", "--budget", "calibrated:" + in("run")}, "option kernel: calibrated for another one: got 3, want"},
		{"with other heads", []string{"--heads", "layer", "--budget", "calibrated:" + in("run")}, "option head-budgets"},
		{"no file", []string{"--budget", "calibrated:" + in("absent")}, "no such file"},
		{"no adapter", []string{"--budget", "calibrated"}, "got 0 adapters"},
	} {
		_, log, err := execute(t, append([]string{"run", "--example", "needle"}, c.args...)...)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || err == nil && !strings.Contains(log, "policy snapkv, budget ") {
			t.Errorf("%s: %v, want %q; %s", c.name, err, c.says, log)
		}
	}

	_, log, err = run("--epsilon", "0.001", "--confidence", "0.5", "--loss", "agreement", "--resume")
	if err == nil || !strings.Contains(err.Error(), "45 documents can certify nothing: it takes") {
		t.Errorf("%v: %s", err, log)
	}
	if _, log, err = run("--epsilon", "0.95", "--loss", "agreement", "--budget", "2%", "--out", in("small")); err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	if _, _, err = run("--epsilon", "0.12", "--loss", "agreement", "--budget", "2%", "--out", in("small"), "--resume"); err == nil || !strings.Contains(err.Error(), "no budget is certified") {
		t.Errorf("at 2%% little is lost: %v", err)
	}
	if _, err := os.Stat(in("small/calibration.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a certificate of what is not certified any more is left: %v", err)
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestCalibrateRefuses: what no calibration can be made of is refused before a model is opened.
func TestCalibrateRefuses(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	prompts(t, in("p.jsonl"), 20, 5, 64)
	for _, c := range []struct {
		name string
		args []string
		says string
	}{
		{"too few", nil, "100 documents can certify nothing: it takes 101"},
		{"too few documents", []string{"--document", "file", "--epsilon", "0.1", "--policy", "snapkv"}, "20 documents can certify nothing: it takes 41"},
		{"no field", []string{"--document", "page"}, `0 of 100 rows have the field "page"`},
		{"epsilon of 0", []string{"--epsilon", "0"}, "epsilon: got 0"},
		{"epsilon above the clip", []string{"--epsilon", "1.5"}, "epsilon: got 1.5"},
		{"confidence", []string{"--confidence", "95"}, "confidence: got 95"},
		{"loss", []string{"--loss", "perplexity"}, "perplexity"},
		{"budgets of both kinds", []string{"--budget", "50%,64"}, "all of them as shares or all as numbers"},
		{"full", []string{"--policy", "full,snapkv"}, "full is what others are measured against"},
		{"the oracle", []string{"--policy", "oracle"}, "bounds that no server can run"},
		{"a policy that there is not", []string{"--policy", "snapkvv"}, "snapkvv"},
		{"no folder", []string{"--out", ""}, "--out: got \"\""},
		{"a bucket", []string{"--out", "s3://bucket/run"}, "--out: got"},
		{"standard input", []string{"--data", "-"}, "--data: got"},
	} {
		args := append([]string{"calibrate", "--data", in("p.jsonl"), "--out", in("run"), "--epsilon", "0.049", "--loss", "nll"}, c.args...)
		if _, _, err := execute(t, args...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
		if _, err := os.Stat(in("run")); err == nil {
			t.Fatalf("%s: it has made the run's folder", c.name)
		}
	}
}

// TestCalibrateAdapter: a calibration beside an adapter is found with it, goes on with it, and is refused with another one.
func TestCalibrateAdapter(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	prompts(t, in("p.jsonl"), 30, 1, 64)
	look := "../../adapters/reference/lookaheadkv"
	if err := os.CopyFS(in("look"), os.DirFS(look)); err != nil {
		t.Fatal(err)
	}
	_, log, err := execute(t, "calibrate", "--data", in("p.jsonl"), "--policy", "lookaheadkv", "--adapter", in("look"), "--budget", "90%", "--max-new", "4", "--loss", "agreement", "--epsilon", "0.5", "--out", in("run"))
	if err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	text, err := os.ReadFile(in("run/calibration.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in("look/calibration.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	answer := func(more ...string) error {
		_, _, err := execute(t, append([]string{"run", "--example", "needle"}, more...)...)
		return err
	}
	if err := answer("--adapter", "mine="+in("look"), "--budget", "calibrated"); err != nil {
		t.Error(err)
	}
	a, err := checkpoints.ReadAdapter(in("look"))
	if err != nil {
		t.Fatal(err)
	}
	a.PoolingKernel += 2
	if err := checkpoints.WriteAdapter(in("other"), a, false); err != nil {
		t.Fatal(err)
	}
	for _, budget := range []string{"calibrated", "calibrated:" + in("run")} {
		if err := answer("--adapter", in("other"), "--budget", budget); err == nil || !strings.Contains(err.Error(), "adapter: calibrated for another one: got ") {
			t.Errorf("another adapter, --budget %s: %v", budget, err)
		}
	}
	if err := os.WriteFile(in("look/calibration.json"), text[:len(text)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := answer("--adapter", in("look"), "--budget", "calibrated"); err == nil || !strings.Contains(err.Error(), "calibration.json beside the adapter") {
		t.Errorf("a damaged one: %v", err)
	}
	if err := answer("--adapter", in("look"), "--policy", "lookaheadkv", "--budget", "50%"); err != nil {
		t.Errorf("a damaged one that nobody asks for: %v", err)
	}
	var other checkpoints.Calibration
	if err := json.Unmarshal(text, &other); err != nil {
		t.Fatal(err)
	}
	other.ModelSHA256 = strings.Repeat("0", 64)
	if err := other.Write(in("run/calibration.json")); err != nil {
		t.Fatal(err)
	}
	if err := answer("--adapter", in("look"), "--budget", "calibrated:"+in("run")); err == nil || !strings.Contains(err.Error(), "model: calibrated for another one: got glimpse-reference with the weights") {
		t.Errorf("another model: %v", err)
	}
}

// TestKilledCalibration: one that is killed and goes on ends with the bytes of one that was never disturbed, in both of its stages.
func TestKilledCalibration(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	prompts(t, in("p.jsonl"), 24, 1, 64)
	program := func(out string, more ...string) *exec.Cmd {
		c := exec.Command(os.Args[0], append([]string{"--threads", "2", "calibrate", "--data", in("p.jsonl"), "--policy", "snapkv,h2o,streamingllm,tova", "--budget", "95%,90%,40%,20%",
			"--max-new", "24", "--loss", "agreement", "--epsilon", "0.4", "--confidence", "0.6", "--out", out}, more...)...)
		c.Env = append(os.Environ(), asProgram+"=1")
		return c
	}
	begin := time.Now()
	log, err := program(in("whole")).CombinedOutput()
	if err != nil || !bytes.Contains(log, []byte("stage 2 of 2")) {
		t.Fatalf("%v, want two stages: %s", err, log)
	}
	took := time.Since(begin)
	for range 4 {
		c := program(in("run"), "--resume")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(took / 2))
		c.Process.Kill()
		c.Wait()
	}
	if log, err := program(in("run"), "--resume").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	for _, name := range []string{"predictions.jsonl", "metrics.json", "calibration.json", "calibration.svg"} {
		if want, got := content(t, in("whole/"+name)), content(t, in("run/"+name)); !bytes.Equal(want, got) {
			t.Errorf("%s differs from that of the undisturbed run", name)
		}
	}
}

// TestCalibratedServer: the server keeps what was calibrated and watches it. On the prompts that were calibrated, its mean loss is the one of
// the calibration.
func TestCalibratedServer(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	all := prompts(t, in("p.jsonl"), 10, 1, 128)
	out, log, err := execute(t, "calibrate", "--data", in("p.jsonl"), "--policy", "snapkv", "--budget", "60%", "--max-new", "8", "--epsilon", "0.9", "--confidence", "0.8", "--out", in("run"), "--json")
	if err != nil {
		t.Fatalf("%v: %s", err, log)
	}
	var got calibrated
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	_, url, said := serveProgram(t, "--budget", "calibrated:"+in("run"), "--verify-share", "1", "--full-below", "0", "--on-breach", "full")
	for _, want := range []string{"calibrated: an expected loss (nll) of at most 0.9 nats per token with 80% confidence", "the promise is watched", "policy=snapkv"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("log %q does not say %q", said, want)
		}
	}
	for _, ids := range all {
		body, err := json.Marshal(map[string]any{"model": "", "prompt": ids, "max_tokens": 8, "temperature": 0})
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.Post(url+"/v1/completions", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte(`"policy":"snapkv"`)) {
			t.Fatalf("%d: %s", r.StatusCode, answer)
		}
	}
	var health struct {
		Calibration struct {
			State    string
			Mean     float64
			Requests int
		}
	}
	for end := time.Now().Add(time.Minute); health.Calibration.Requests < len(all); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("health %+v", health)
		}
		r, err := http.Get(url + "/health")
		if err != nil {
			t.Fatal(err)
		}
		err = json.NewDecoder(r.Body).Decode(&health)
		r.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := got.Lines[0].Mean; health.Calibration.State != "kept" || fmt.Sprintf("%.4f", health.Calibration.Mean) != fmt.Sprintf("%.4f", want) {
		t.Errorf("the server sees a mean loss of %v, the calibration %v", health.Calibration.Mean, want)
	}
	for _, c := range []struct{ args, says string }{
		{"--on-breach full", "nothing is promised"},
		{"--on-breach retrain --budget calibrated:" + in("run"), "retrain"},
		{"--policy snapkv --budget calibrated:" + in("run"), "the calibration says which policy"},
	} {
		if _, _, err := execute(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, strings.Fields(c.args)...)...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("serve %s: %v, want %q", c.args, err, c.says)
		}
	}
}
