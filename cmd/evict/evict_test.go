package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/model/modeltest"
)

// execute runs the command as a user would.
func execute(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return executeContext(t, t.Context(), args...)
}

func executeContext(t *testing.T, ctx context.Context, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	root := newRoot()
	root.SilenceErrors, root.SilenceUsage = true, true
	var out, log bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&log)
	root.SetArgs(args)
	err = root.ExecuteContext(ctx)
	return out.String(), log.String(), err
}

// TestExamplesAreAnswered: the built-in model answers its examples with the full
// cache.
func TestExamplesAreAnswered(t *testing.T) {
	for _, example := range []string{"needle", "hops", "section"} {
		out, log, err := execute(t, "run", "--policy", "full", "--example", example)
		if err != nil {
			t.Fatalf("%s: %v", example, err)
		}
		if !strings.Contains(log, "the answer is right") || strings.TrimSpace(out) == "" {
			t.Errorf("%s: answered %q\n%s", example, out, log)
		}
		if !strings.Contains(log, "(100.0%)") {
			t.Errorf("%s: policy full did not keep everything:\n%s", example, log)
		}
	}
}

// TestEvalJSON checks the promised keys, their ranges, and that a seed repeats.
func TestEvalJSON(t *testing.T) {
	args := []string{"eval", "--policy", "full,snapkv,judgeq,lookaheadkv,oracle", "--budget", "16,64", "--task", "needle,section", "--tokens", "128", "--samples", "3", "--seed", "5", "--json"}
	out, _, err := execute(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := execute(t, args...)
	if err != nil || again != out {
		t.Fatalf("the same seed gave other results (%v)", err)
	}
	var rows []map[string]any
	if err := unmarshalRows(out, &rows); err != nil {
		t.Fatal(err)
	}
	if want := 2 * (1 + 4*2); len(rows) != want {
		t.Fatalf("%d rows, want %d", len(rows), want)
	}
	for _, r := range rows {
		for _, key := range []string{"policy", "budget", "task", "score", "hit_rate", "kept_bytes", "samples"} {
			if _, ok := r[key]; !ok {
				t.Fatalf("row %v has no %s", r, key)
			}
		}
		budget, kept := r["budget"].(float64), r["kept_bytes"].(float64)
		if budget == 0 {
			budget = 128
		}
		// 8 layers, 2 KV heads, 32 numbers of 4 bytes, keys and values.
		if want := budget * 8 * 2 * 32 * 4 * 2; kept != want {
			t.Errorf("row %v: kept %v bytes, want %v", r, kept, want)
		}
		if a := r["score"].(float64); a < 0 || a > 1 {
			t.Errorf("row %v: score outside 0–1", r)
		}
		if r["policy"] == "oracle" && r["hit_rate"].(float64) != 1 {
			t.Errorf("the oracle's hit rate is %v, want 1", r["hit_rate"])
		}
	}
}

// TestEvalOfTwoTurns: every policy answers a second turn; what its steps read is
// within the budget of a sparse policy, and what it holds for the others.
func TestEvalOfTwoTurns(t *testing.T) {
	const budget, tokens, pair = 32, 256, 8 * 2 * 32 * 4 * 2 // bytes of a pair in all heads
	out, _, err := execute(t, "eval", "--policy", "full,snapkv,h2o,d2o,quest,sparq,exact-topk,rocketkv,rocketkv-mt,snapkv:hsa", "--budget", "32", "--task", "turns_section", "--tokens", "256", "--samples", "4", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Policy  string
		Traffic float64 `json:"traffic_bytes_per_step"`
		Kept    float64 `json:"kept_bytes"`
		Right   float64 `json:"score"`
	}
	if err := unmarshalRows(out, &rows); err != nil || len(rows) != 10 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, r := range rows {
		read, kept := r.Traffic/pair, r.Kept/pair
		switch r.Policy {
		case "full":
			if read < tokens || read > tokens+40 || kept != tokens || r.Right < 0.7 {
				t.Errorf("%+v: reads %.1f pairs per head and step", r, read)
			}
		case "snapkv", "h2o", "d2o":
			if read < budget/2 || read > budget+16 || kept > budget {
				t.Errorf("%+v: reads %.1f pairs and holds %.1f", r, read, kept)
			}
		default:
			if read < budget/2 || read > budget || kept <= budget {
				t.Errorf("%+v: reads %.1f pairs and holds %.1f", r, read, kept)
			}
		}
	}
}

func TestPoliciesJSON(t *testing.T) {
	out, _, err := execute(t, "policies", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Policies []struct {
			Name, Kind, Doc, Source string
			Options                 []map[string]any
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	rows := list.Policies
	if len(rows) != len(eviction.Policies.Names()) {
		t.Fatalf("%d policies listed, %d registered", len(rows), len(eviction.Policies.Names()))
	}
	for _, r := range rows {
		if r.Name == "" || r.Kind == "" || r.Doc == "" || r.Source == "" {
			t.Errorf("policy %+v is not described", r)
		}
		if r.Options == nil {
			t.Errorf("%s: options are null", r.Name)
		}
		for _, o := range r.Options {
			if _, isChoice := o["choices"]; isChoice != (o["max"] == nil) || o["default"] == nil || o["name"] == nil || o["doc"] == nil {
				t.Errorf("%s: option %v is neither a number nor a choice", r.Name, o)
			}
			if r.Name == "adakv" && o["name"] == "scorer" && o["default"] != "snapkv" {
				t.Errorf("adakv scores by %v", o["default"])
			}
		}
	}
	table, _, err := execute(t, "policies", "--markdown")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(strings.TrimSpace(table), "\n"); len(lines) != len(rows)+2 {
		t.Errorf("%d lines of Markdown for %d policies", len(lines), len(rows))
	}
	for _, line := range strings.Split(strings.TrimSpace(table), "\n") {
		if strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") != 6 {
			t.Errorf("not five cells: %s", line)
		}
	}
	if _, _, err := execute(t, "policies", "--markdown", "--json"); err == nil {
		t.Error("two forms at once")
	}
}

// TestDraftsAndPatterns: policies for every draft, the pattern that ships with the
// model and one that evict patterns finds.
func TestDraftsAndPatterns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pattern")
	out, _, err := execute(t, "patterns", "--out", dir, "--samples", "4", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var pattern struct{ Heads [][]float64 }
	err = json.Unmarshal([]byte(out), &pattern)
	heads := pattern.Heads
	if err != nil {
		t.Fatal(err)
	}
	// A few heads copy, and others never look there.
	if least, most := slices.Min(slices.Concat(heads...)), slices.Max(slices.Concat(heads...)); len(heads) != 8 || most < 0.9 || least > 0.01 {
		t.Errorf("heads %v", heads)
	}
	eval := func(args ...string) (labels []string) {
		t.Helper()
		out, _, err := execute(t, append([]string{"eval", "--budget", "64", "--task", "section", "--tokens", "128", "--samples", "2", "--json"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		var rows []struct {
			Policy, Adapter string
			Recall          *float64 `json:"recall"`
			KendallTau      *float64 `json:"kendall_tau"`
		}
		if err := unmarshalRows(out, &rows); err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			labels = append(labels, r.Policy+"/"+r.Adapter)
			if scores := r.Policy != "duoattention"; scores != (r.Recall != nil) || scores != (r.KendallTau != nil) {
				t.Errorf("%s: recall %v, τ %v", r.Policy, r.Recall, r.KendallTau)
			}
		}
		return labels
	}
	if got, want := eval("--policy", "speckv,duoattention,snapkv", "--draft", "self", "--draft", "two=layers:2", "--draft", "shipped"), []string{"speckv/self", "speckv/two", "speckv/shipped", "duoattention/", "snapkv/"}; !slices.Equal(got, want) {
		t.Errorf("policies %v, want %v", got, want)
	}
	if got, want := eval("--policy", "duoattention", "--pattern", dir), []string{"duoattention/"}; !slices.Equal(got, want) {
		t.Errorf("policies %v, want %v", got, want)
	}
	if got, want := eval("--policy", "adakv,compose", "--set", "adakv.scorer=lookaheadkv", "--set", "compose.scorer=speckv"), []string{"adakv/shipped", "compose/"}; !slices.Equal(got, want) {
		t.Errorf("policies %v, want %v", got, want)
	}
}

// TestPatternsOfOtherModels: a model without the words of the tasks copies random
// tokens.
func TestPatternsOfOtherModels(t *testing.T) {
	folder, err := modeltest.Llama{Vocab: 100}.Folder()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, folder); err != nil {
		t.Fatal(err)
	}
	out, _, err := execute(t, "patterns", "--model", dir, "--samples", "2", "--tokens", "100", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var pattern struct{ Heads [][]float64 }
	err = json.Unmarshal([]byte(out), &pattern)
	heads := pattern.Heads
	if err != nil || len(heads) != 2 || len(heads[0]) != 2 {
		t.Fatalf("%s: %v", out, err)
	}
	for _, layer := range heads {
		for _, v := range layer {
			if v <= 0 || v > 0.3 { // random weights attend to about all tokens alike
				t.Errorf("a random model retrieves: %v", heads)
			}
		}
	}
	_, _, err = execute(t, "inspect", "--model", dir, "--policy", "duoattention", "--example", "section")
	if err == nil || !strings.Contains(err.Error(), "needs a pattern of retrieval heads; \"evict patterns --model") {
		t.Errorf("no pattern: %v", err)
	}
}

func TestInspectJSON(t *testing.T) {
	ids := filepath.Join(t.TempDir(), "ids.txt")
	if err := os.WriteFile(ids, []byte("1 3 7, 320 321\n322 323 324 325 326 327 328 8 2 4 5 6"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, _, err := execute(t, "inspect", "--policy", "lookaheadkv", "--budget", "5", "--token-ids", ids, "--json")
	if err != nil {
		t.Fatal(err)
	}
	var inspected struct {
		Heads []struct {
			Layer     int       `json:"layer"`
			KVHead    int       `json:"kv_head"`
			Positions []int     `json:"positions"`
			Scores    []float64 `json:"scores"`
		}
	}
	if err := json.Unmarshal([]byte(out), &inspected); err != nil {
		t.Fatal(err)
	}
	rows := inspected.Heads
	if len(rows) != 16 {
		t.Fatalf("%d heads, want 8 layers of 2", len(rows))
	}
	for _, r := range rows {
		if len(r.Positions) != 5 || len(r.Scores) != 17 {
			t.Fatalf("layer %d head %d: %d positions and %d scores, want 5 and 17", r.Layer, r.KVHead, len(r.Positions), len(r.Scores))
		}
	}
}

// TestBudgetBeyondThePrompt: a budget that is larger than the prompt keeps all of it, as that of
// the whole prompt does.
func TestBudgetBeyondThePrompt(t *testing.T) {
	for _, policy := range []string{"snapkv", "h2o", "quest", "lookaheadkv", "snapkv:quest"} {
		var answers []string
		for _, budget := range []string{"100%", "64"} {
			out, log, err := execute(t, "run", "--example", "needle", "--tokens", "42", "--policy", policy, "--budget", budget, "--json")
			var got struct {
				Answer string
				Pairs  float64
			}
			if err != nil || json.Unmarshal([]byte(out), &got) != nil || got.Pairs != 42 {
				t.Fatalf("run, %s at %s: %v, %+v\n%s", policy, budget, err, got, log)
			}
			answers = append(answers, got.Answer)
		}
		if answers[0] != answers[1] {
			t.Errorf("%s: answers %q", policy, answers)
		}
		out, log, err := execute(t, "inspect", "--example", "needle", "--tokens", "42", "--policy", policy, "--budget", "64", "--json")
		if err != nil || strings.Count(out, "        41\n") != 16 {
			t.Errorf("inspect, %s: %v, want the last position in each of 16 heads\n%s%s", policy, err, out, log)
		}
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "ids.txt")
	if err := os.WriteFile(bad, []byte("1 2\nthree"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown policy":   {[]string{"run", "--policy", "snapvk", "--example", "section"}, "want one of: " + strings.Join(eviction.Policies.Names(), ", ")},
		"unknown task":     {[]string{"eval", "--task", "chian"}, "want one of: "},
		"budget 0":         {[]string{"run", "--budget", "0", "--example", "section"}, "budget: got 0"},
		"budget of all":    {[]string{"chat", "--budget", "101%"}, "above 0 and at most 100%"},
		"budget of words":  {[]string{"inspect", "--budget", "half", "--example", "section"}, "as 128, or a share of the prompt, as 10% or 0.1"},
		"negative budget":  {[]string{"eval", "--budget", "32,-1"}, "budget: got -1"},
		"empty prompt":     {[]string{"run", ""}, "prompt: got an empty string, want text"},
		"no such system":   {[]string{"run", "--system", "@" + bad + "x", "map"}, "ids.txtx"},
		"refused system":   {[]string{"run", "--system", "be brief", "map"}, "chat template: the reference model knows the roles user and assistant only"},
		"chat with system": {[]string{"chat", "--system", "be brief"}, "chat template: the reference model knows the roles user and assistant only"},
		"system of ids":    {[]string{"run", "--system", "be brief", "--example", "section"}, "--system: the prompt does not go into a chat template"},
		"raw messages":     {[]string{"run", "--messages", bad, "--raw"}, "--messages: the prompt does not go into a chat template"},
		"no messages":      {[]string{"run", "--messages", bad}, "ids.txt: invalid character"},
		"no prompt":        {[]string{"run"}, "want one of a text"},
		"two prompts":      {[]string{"run", "map", "--example", "section"}, "want one of a text"},
		"other words":      {[]string{"run", "hello"}, `"hello"`},
		"too long":         {[]string{"run", "--example", "section", "--tokens", "5000"}, "longer than the model's context"},
		"bad ids":          {[]string{"inspect", "--token-ids", bad}, `line 2: got "three"`},
		"id out of range":  {[]string{"inspect", "--token-ids", bad + "x"}, "ids.txtx"},
		"no adapter":       {[]string{"run", "--adapter", filepath.Join(dir, "none"), "--example", "section"}, "none"},
		"unknown option":   {[]string{"run", "--set", "snapkv.windw=3", "--example", "section"}, "window, kernel"},
		"unknown choice":   {[]string{"run", "--set", "adakv.scorer=full", "--example", "section"}, "want one of: dapq, expectedattention"},
		"unused adapter":   {[]string{"run", "--policy", "snapkv", "--adapter", "../../adapters/reference/judgeq", "--example", "section"}, `kind "judgeq": no policy of snapkv takes it`},
		"unused draft":     {[]string{"run", "--policy", "snapkv", "--draft", "self", "--example", "section"}, `draft "self": no policy of snapkv takes it`},
		"unused pattern":   {[]string{"run", "--policy", "snapkv", "--pattern", "../../model/builtin/reference/duoattention", "--example", "section"}, "no policy of snapkv takes it"},
		"no such pattern":  {[]string{"run", "--policy", "duoattention", "--pattern", dir, "--example", "section"}, "config.json"},
		"no such draft":    {[]string{"run", "--policy", "speckv", "--draft", filepath.Join(dir, "nowhere"), "--example", "section"}, "nowhere"},
		"draft too deep":   {[]string{"run", "--policy", "speckv", "--draft", "layers:9", "--example", "section"}, "got 9 layers, want 1 to 8"},
		"draft of others":  {[]string{"run", "--model", "../../model/testdata/golden/llama3.1", "--policy", "speckv", "--draft", "shipped", "--prompt", "x"}, `draft "shipped": only the built-in model has a shipped draft`},
		"draft of a word":  {[]string{"run", "--policy", "speckv", "--draft", "layers:two", "--example", "section"}, `got "two" layers`},
		"draft twice":      {[]string{"eval", "--policy", "speckv", "--draft", "self", "--draft", "self"}, `two drafts named "self"`},
		"two drafts, one":  {[]string{"run", "--policy", "speckv", "--draft", "self", "--draft", "layers:2", "--example", "section"}, "2 adapters or drafts for it, self and layers:2"},
		"patterns nowhere": {[]string{"patterns"}, "--out is missing"},
		"patterns of none": {[]string{"patterns", "--samples", "0", "--out", "x"}, "got 0"},
		"pattern is there": {[]string{"patterns", "--samples", "1", "--out", dir}, "exists"},
		"even kernel":      {[]string{"run", "--set", "snapkv.kernel=4", "--example", "section"}, "odd"},
		"option range":     {[]string{"run", "--set", "snapkv.window=0", "--example", "section"}, "from 1 to"},
		"no such model":    {[]string{"run", "--model", filepath.Join(dir, "nowhere"), "map"}, "nowhere"},
		"no samples":       {[]string{"eval", "--samples", "-1"}, "samples: got -1"},
		"temperature":      {[]string{"run", "--temperature", "-2", "--example", "section"}, "temperature: got -2"},
		"greedy top-k":     {[]string{"run", "--temperature", "0", "--top-k", "5", "--example", "section"}, "temperature: got 0, which is greedy"},
		"greedy top-p":     {[]string{"chat", "--temperature", "0", "--top-p", "0.5"}, "temperature: got 0, which is greedy"},
		"sampling word":    {[]string{"chat", "--sampling", "beam"}, `sampling: got "beam", want model or greedy`},
		"temperature text": {[]string{"run", "--temperature", "hot", "--example", "section"}, `got "hot", want a number`},
	} {
		t.Run(name, func(t *testing.T) {
			out, _, err := execute(t, c.args...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want it to say %q", err, c.want)
			}
			if out != "" {
				t.Fatalf("printed %q before the error", out)
			}
		})
	}
}

// TestBudgetShares: a share of the prompt keeps what its number of pairs keeps.
func TestBudgetShares(t *testing.T) {
	share, _, err := execute(t, "inspect", "--policy", "snapkv", "--budget", "0.1", "--example", "needle", "--tokens", "256")
	if err != nil {
		t.Fatal(err)
	}
	if pairs, _, err := execute(t, "inspect", "--policy", "snapkv", "--budget", "25", "--example", "needle", "--tokens", "256"); err != nil || pairs != share {
		t.Errorf("%v: 10%% of 256 tokens keep\n%s\n25 pairs keep\n%s", err, share, pairs)
	}
	for budget, want := range map[string]string{"10%": "budget 25 (10%): kept 25 of 256", "1": "budget 1: kept 1 of 256", "1.0": "budget 256 (100%): kept 256 of 256"} {
		if _, log, err := execute(t, "run", "--policy", "snapkv", "--budget", budget, "--example", "needle", "--tokens", "256"); err != nil || !strings.Contains(log, want) {
			t.Errorf("--budget %s: %v; said:\n%s\nwant %q", budget, err, log, want)
		}
	}
}

// unmarshalRows reads the rows of an evaluation's JSON.
func unmarshalRows(out string, rows any) error {
	return json.Unmarshal([]byte(out), &struct {
		Schema string `json:"schema"`
		Rows   any    `json:"rows"`
	}{Rows: rows})
}

// TestEvalSaysThatNothingIsEvicted: a budget of the prompt's length or more is no error, as
// prompts of many lengths may be measured, but it is told.
func TestEvalSaysThatNothingIsEvicted(t *testing.T) {
	_, log, err := execute(t, "eval", "--policy", "snapkv", "--budget", "100", "--task", "section", "--tokens", "96", "--samples", "1")
	if err != nil || !strings.Contains(log, "budget 100 is not below the 96 tokens of prompts of task section") {
		t.Errorf("%v, log %q", err, log)
	}
}
