package report

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"glimpse/evaluation"
	"glimpse/evaluation/runs"
	"glimpse/eviction"
	"glimpse/internal/stats"
)

// evil is text that would be markup, a script or the end of a table if it were not escaped.
const evil = "`" + `</script></td></table><img src=x onerror="window.pwned=1"><script>window.pwned=1</script> | ` + "`x` ``` " + `[a](javascript:alert(1)) **b** {{.}} ${1}`

const evilName = `<img src=x onerror=window.pwned=1>|*_` // that a policy or a task may have

// predict is a prediction with a score.
func predict(task string, index int, policy, adapter, budget string, score float64, answer string, groups ...evaluation.Group) *evaluation.Prediction {
	kept := 1024.0
	if budget != "" {
		kept = 256
	}
	return &evaluation.Prediction{
		Task: task, Index: index, Sample: fmt.Sprintf("%s-%d", task, index), Model: "model", Policy: policy, Adapter: adapter, Budget: budget,
		Metric: "accuracy", Groups: groups, PromptTokens: 100, Answers: []string{answer}, Finish: []string{"stop"}, Cells: 1,
		Measures: evaluation.Measures{"accuracy": score, evaluation.MeasureKept: kept, evaluation.MeasureFull: 1024, evaluation.MeasureHitRate: score / 2, "loss_at_8": 1.5, "loss_at_16": 1.25},
	}
}

// stored is a run of three policies, the full cache and the oracle at two budgets on two
// tasks of a suite, one of needles, and one whose every name and answer is hostile.
func stored() *runs.Stored {
	s := &runs.Stored{Path: "out/run", Config: []byte("seed: 1\ntasks:\n    - task: suite\n# " + evil + "\n"), Finished: true,
		Environment: &runs.Environment{Glimpse: "v1", Go: "go1", System: "linux/amd64", Models: []runs.AboutModel{{Name: "model", SHA256: "abc", Device: "cpu",
			Policies: []runs.AboutPolicy{{Policy: "snapkv", Settings: map[string]float64{"kernel": 7, "window": 32}}, {Policy: "compose", Settings: map[string]float64{"scorer": 1}}}}}}}
	right := func(ok bool) float64 {
		if ok {
			return 1
		}
		return 0
	}
	for t, task := range []string{"suite/a", "suite/b"} {
		for i := range 8 + 12*t { // tasks of unequal sizes
			add := func(policy, adapter, budget string, score float64) {
				s.Predictions = append(s.Predictions, predict(task, i, policy, adapter, budget, score, fmt.Sprintf("%s says %v", task, score)))
			}
			add("full", "", "", 1)
			for _, b := range []string{"16", "32"} {
				add("oracle", "", b, 1)
				add("snapkv", "", b, right(i%4 != 0 || b == "32"))
				add("judgeq", "mine", b, right(i%2 == 0))
				add("random", "", b, 0)
			}
		}
	}
	for i := range 4 {
		groups := []evaluation.Group{{Key: "length", Value: []string{"512", "1024"}[i%2]}, {Key: "depth", Value: []string{"0", "1"}[i/2]}}
		for _, b := range []string{"16", "32"} {
			s.Predictions = append(s.Predictions, predict("needle", i, "snapkv", "", b, right(i > 0), "x", groups...), predict("needle", i, "tova", "", b, 0.25, "y", groups...))
		}
	}
	for i := range 2 {
		for _, b := range []string{"16", "32"} {
			s.Predictions = append(s.Predictions, predict(evilName, i, evilName, "", b, right(i == 0), evil), predict(evilName, i, "snapkv", "", b, 0.5, "\x00\x1b[31m\u202etxt\n\n"))
		}
	}
	s.Predictions[len(s.Predictions)-1].Error = evil
	s.Predictions[len(s.Predictions)-2].Groups = []evaluation.Group{{Key: evil, Value: evil}}
	for _, p := range s.Predictions {
		if p.Task == "suite/a" && p.Index == 0 {
			s.Timings = append(s.Timings, evaluation.Timing{Model: "model", Task: p.Task, Policy: p.Policy, Adapter: p.Adapter, Budget: p.Budget, PromptTokens: 100, TTFTMillis: 10, TTFTOverhead: new(0.1 * float64(len(p.Policy)-5)), DecodeTokensPerSecond: 50},
				evaluation.Timing{Model: "model", Task: "suite/b", Policy: p.Policy, Adapter: p.Adapter, Budget: p.Budget, PromptTokens: 100, TTFTMillis: 20, TTFTOverhead: new(0.1 * float64(len(p.Policy)-5)), DecodeTokensPerSecond: 150})
		}
	}
	tokens := []string{"<b>", " of", "</script>", "\n", evil}
	s.Kept = []*evaluation.Kept{
		{Model: "model", Task: "suite/a", Sample: "suite/a-0", Layers: 2, KVHeads: 4, Tokens: tokens, Cells: []evaluation.KeptCell{
			{Policy: "snapkv", Budget: "16", Shares: "0z80V"}, {Policy: "snapkv", Budget: "32", Shares: "zzzz0"}, {Policy: "judgeq", Adapter: "mine", Budget: "16", Shares: "00z00"}}},
		{Model: "model", Task: evilName, Sample: evil, Layers: 2, KVHeads: 4, Tokens: tokens, Cells: []evaluation.KeptCell{{Policy: evilName, Budget: "16", Shares: "z0000"}}},
	}
	return s
}

// TestReportShowsWhatWasAsked: prompt and references stand with the answers, and are obeyed by neither form.
func TestReportShowsWhatWasAsked(t *testing.T) {
	s := stored()
	for _, p := range s.Predictions {
		p.Prompt, p.References = "What is the capital? "+evil, []string{"Paris " + evil, "the city of " + p.Sample}
	}
	r := build(t, Options{Samples: 1}, s)
	page, text := html(t, r), markdownOf(t, r)
	for _, want := range []string{"What is the capital? ", "Paris ", "the city of suite/a-0"} {
		if !strings.Contains(page, want) || !strings.Contains(text, want) {
			t.Errorf("%q is not in both", want)
		}
	}
	if strings.Contains(page, "<script>window.pwned") || strings.Contains(page, "<img src=x") {
		t.Error("the page has markup of a prompt")
	}
	if strings.Contains(page, "the city of suite/a-1") {
		t.Error("the page has more than the first sample")
	}
}

func build(t *testing.T, o Options, all ...*runs.Stored) *Report {
	t.Helper()
	r, err := New(all, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func html(t *testing.T, r *Report) string {
	t.Helper()
	var out bytes.Buffer
	if err := r.WriteHTML(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func markdownOf(t *testing.T, r *Report) string {
	t.Helper()
	var out bytes.Buffer
	if err := r.WriteMarkdown(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// line is the text of a table's line of a policy.
func line(t *testing.T, table *Table, label string) []Cell {
	t.Helper()
	for _, l := range table.Lines {
		if l.Cells[0].Text == label {
			return l.Cells
		}
	}
	t.Fatalf("no line %q in %+v", label, table)
	return nil
}

func TestNumbers(t *testing.T) {
	r := build(t, Options{Samples: 2}, stored())
	if len(r.Sections) != 3 || r.Sections[0].Suite != "suite" || r.Sections[1].Suite != "needle" {
		t.Fatalf("%d sections: %+v", len(r.Sections), r.Sections)
	}
	s := r.Sections[0]
	if want := []string{"full", "oracle", "snapkv", "judgeq/mine", "random"}; !slices.Equal(s.order, want) {
		t.Errorf("order %q, want %q", s.order, want)
	}
	// snapkv at 16: 6 of 8 and 15 of 20 are right.
	snap := line(t, s.Overview, "snapkv")
	stdErr := math.Hypot(stats.BinomialStdErr(0.75, 8), stats.BinomialStdErr(0.75, 20)) / 2
	if snap[1].Text != "75.0" || snap[1].Error != percent(stdErr) || snap[1].Mark != Best || snap[2].Text != "100.0" || snap[2].Mark != Best {
		t.Errorf("snapkv: %+v", snap)
	}
	judge, full, random := line(t, s.Overview, "judgeq/mine"), line(t, s.Overview, "full"), line(t, s.Overview, "random")
	if judge[1].Text != "50.0" || judge[1].Mark != Second || full[1].Mark != Unmarked || full[1].Text != "100.0" || random[1].Mark != Unmarked {
		t.Errorf("judgeq %+v, full %+v, random %+v", judge, full, random)
	}
	table := s.Scores[0].Table
	cells := line(t, table, "judgeq/mine")
	byHead := make(map[string]string)
	for i, h := range table.Heads {
		byHead[h.Text+" "+h.Unit] = cells[i].Text
	}
	for head, want := range map[string]string{
		"a %, n=8": "50.0", "b %, n=20": "50.0", "mean %": "50.0", "hit rate %": "25.0", "kept KiB": "0.25", "kept % of full": "25.0",
		"TTFT ms": "15.0", "overhead % of prefill": "+10.0", "decode tokens/s": "100",
	} {
		if byHead[head] != want {
			t.Errorf("column %q: %q, want %q (have %v)", head, byHead[head], want, byHead)
		}
	}
	// judgeq against snapkv at 16: of every 4 samples i, it wins 0, loses 1 and 3.
	cells = line(t, s.Tests[0].Table, "judgeq/mine")
	if cells[4].Text != "−25.0" || cells[7].Text != "7–7–14" {
		t.Errorf("test of judgeq: %+v", cells)
	}
	if got := line(t, s.Tests[0].Table, "snapkv")[4].Text; got != "baseline" {
		t.Errorf("test of snapkv: %q, want that it is the baseline", got)
	}
	if judge[1].Near == (line(t, s.Tests[0].Table, "judgeq/mine")[9].Text < "0.05") {
		t.Errorf("judgeq is near the best: %v, with p %s", judge[1].Near, line(t, s.Tests[0].Table, "judgeq/mine")[9].Text)
	}
	if len(s.Measures) != 2 || s.Measures[0].Heads[2].Text != "8" && s.Measures[0].Heads[2].Text != "16" {
		t.Errorf("measures: %+v", s.Measures)
	}
	if settings := line(t, r.Policies, "snapkv")[3].Text; settings != "kernel=7 window=32" {
		t.Errorf("settings of snapkv: %q", settings)
	}
	needle := r.Sections[1]
	if len(needle.Heat) != 2 || len(needle.Heat[0].Charts) != 2 || strings.Count(string(needle.Heat[0].Charts[0].SVG()), "<rect ") != 4 {
		t.Fatalf("heat maps: %+v", needle.Heat)
	}
	_, first, _ := strings.Cut(string(needle.Heat[0].Charts[0].SVG()), "<rect ")
	if first, _, _ = strings.Cut(first, "/>"); !strings.Contains(first, `data-tip="snapkv, 512 tokens, depth 0 %: 0.0 %`) || !strings.Contains(first, `fill="#440154"`) {
		t.Errorf("first cell: %s", first)
	}
	if len(r.Summary) != 2 || line(t, r.Summary[0].Table, "snapkv")[2].Text != "75.0" {
		t.Errorf("summary: %+v", r.Summary)
	}
}

// TestMarks: the digits that are shown decide, and bounds are left out.
func TestMarks(t *testing.T) {
	for name, c := range map[string]struct {
		values []float64
		better sense
		want   []Mark
	}{
		"plain":            {[]float64{1, 3, 2}, higher, []Mark{Unmarked, Best, Second}},
		"ties":             {[]float64{3, 3, 2, 2, 1}, higher, []Mark{Best, Best, Second, Second, Unmarked}},
		"by what is shown": {[]float64{2.04, 2.01, 1}, higher, []Mark{Best, Best, Unmarked}},
		"lower is better":  {[]float64{1, 3, 2}, lower, []Mark{Best, Unmarked, Second}},
		"all alike":        {[]float64{1, 1}, higher, []Mark{Unmarked, Unmarked}},
		"two values":       {[]float64{2, 1}, higher, []Mark{Best, Unmarked}},
		"absent":           {[]float64{math.NaN(), 2, 1, 0}, higher, []Mark{Unmarked, Best, Second, Unmarked}},
		"a bound":          {[]float64{-9, 2, 1, 0}, higher, []Mark{Unmarked, Best, Second, Unmarked}},
	} {
		table := new(Table)
		for _, v := range c.values {
			table.Lines = append(table.Lines, Line{Cells: []Cell{{}, {Text: fmt.Sprintf("%.1f", v)}}})
		}
		markColumn(table, 1, c.values, func(i int) bool { return c.values[i] != -9 }, c.better)
		for i, want := range c.want {
			if got := table.Lines[i].Cells[1].Mark; got != want {
				t.Errorf("%s: value %v is marked %v, want %v", name, c.values[i], got, want)
			}
		}
	}
}

// TestBaselineAndColours that were asked for.
func TestBaselineAndColours(t *testing.T) {
	s := build(t, Options{Baseline: "full", Highlight: []string{"random"}}, stored()).Sections[0]
	if got := line(t, s.Tests[1].Table, "snapkv")[4].Text; got != "0.0" {
		t.Errorf("snapkv at 32 against the full cache: %q", got)
	}
	if !s.chosen("random") || s.chosen("snapkv") || s.chosen("full") {
		t.Errorf("colours: %v", s.looks)
	}
	if line(t, s.Overview, "judgeq/mine")[1].Near {
		t.Error("against a baseline that was asked for, nothing is near the best")
	}
	for _, o := range []Options{{Baseline: "nobody"}, {Highlight: []string{"snapkv", "nobody"}}} {
		if _, err := New([]*runs.Stored{stored()}, o); err == nil || !strings.Contains(err.Error(), `"nobody"`) {
			t.Errorf("%+v: error %v, want one that names what is not there", o, err)
		}
	}
}

// TestModels: runs over other models are joined, each with sections of its own.
func TestModels(t *testing.T) {
	other := stored()
	other.Path = "out/other"
	for _, p := range other.Predictions {
		p.Model = "other"
	}
	for i := range other.Timings {
		other.Timings[i].Model = "other"
	}
	r := build(t, Options{}, stored(), other)
	var titles []string
	for _, s := range r.Sections {
		titles = append(titles, s.Title)
	}
	want := []string{"model, suite", "model, needle", "model, " + evilName, "other, suite", "other, needle", "other, " + evilName}
	if !slices.Equal(titles, want) {
		t.Errorf("sections %q, want %q", titles, want)
	}
	if got := line(t, r.Summary[0].Table, "snapkv"); len(got) != 7 || got[1].Text != "75.0" || got[4].Text != "75.0" {
		t.Errorf("summary: %+v", got)
	}
	if len(r.Runs) != 2 || r.Facts[0].Value != "model, other" {
		t.Errorf("%d runs, %+v", len(r.Runs), r.Facts)
	}
}

// TestUnfinished is said.
func TestUnfinished(t *testing.T) {
	s := stored()
	s.Finished, s.Damage, s.Environment, s.Timings, s.Kept = false, "line 7: cut off", nil, nil, nil
	r := build(t, Options{}, s)
	text := strings.Join(r.Notices, "\n")
	if !strings.Contains(text, "out/run is not finished: 34 samples so far") || !strings.Contains(text, "line 7: cut off") || !strings.Contains(text, "1 of ") {
		t.Errorf("notices: %s", text)
	}
	if len(r.Sections[0].Costs) == 0 || len(r.Sections[0].Costs[0].Charts) != 1 {
		t.Errorf("charts of costs without times: %+v", r.Sections[0].Costs)
	}
}

// TestDevicesThatDiffer are said: rounding may decide between tokens.
func TestDevicesThatDiffer(t *testing.T) {
	for _, c := range []struct {
		name string
		on   []string // of runs
		want string   // "": nothing is said
	}{
		{"one", []string{"cpu avx2+vnni"}, ""},
		{"the same", []string{"cpu avx2+vnni", "cpu avx2+vnni"}, ""},
		{"two", []string{"cpu avx2+vnni", "cpu avx512+vnni"}, "Model model was measured on cpu avx2+vnni and on cpu avx512+vnni:"},
		{"one run on both", []string{"cpu avx2+vnni, cpu exact avx2"}, "Model model was measured on cpu avx2+vnni and on cpu exact avx2:"},
	} {
		var all []*runs.Stored
		for _, device := range c.on {
			s := stored()
			s.Environment.Models[0].Device = device
			all = append(all, s)
		}
		got := devicesDiffer(all)
		if len(got) > 1 || (len(got) == 1) != (c.want != "") || len(got) == 1 && !strings.Contains(got[0], c.want) {
			t.Errorf("%s: notices %q, want %q", c.name, got, c.want)
		}
		if c.want != "" {
			if r := build(t, Options{}, all[0]); len(all) == 1 && !strings.Contains(html(t, r), "Model model was measured on cpu avx2") {
				t.Errorf("%s: the page does not say it", c.name)
			}
		}
	}
}

// TestSameBytes: nothing depends on the order of maps, or of goroutines.
func TestSameBytes(t *testing.T) {
	a, b := build(t, Options{Samples: 9}, stored()), build(t, Options{Samples: 9}, stored())
	if html(t, a) != html(t, b) || markdownOf(t, a) != markdownOf(t, b) {
		t.Error("the same run gives other bytes")
	}
}

var tag = regexp.MustCompile(`<[a-zA-Z/!][^>]*>`)

// TestHostileText: no text of a run becomes markup, in names, answers, groups, errors,
// tokens and the configuration.
func TestHostileText(t *testing.T) {
	r := build(t, Options{Samples: 9, Title: evil}, stored())
	page := html(t, r)
	for _, m := range tag.FindAllString(page, -1) {
		if strings.HasPrefix(m, "<img") || strings.Contains(m, "onerror") && !strings.Contains(m, "&") {
			t.Errorf("markup of a run's text: %s", m)
		}
	}
	if n := strings.Count(page, "<script"); n != 3 { // two of data, one of the page
		t.Errorf("%d scripts, want 3", n)
	}
	if strings.Contains(page, "</script></td>") {
		t.Error("a text of the run ends a script")
	}
	for _, want := range []string{"default-src &#39;none&#39;", "sha256-", "(empty)"} {
		if want != "(empty)" && !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	text := markdownOf(t, r)
	bars := func(l string) int { return strings.Count(l, "|") - strings.Count(l, `\|`) }
	width := 0
	inCode := ""
	for i, l := range strings.Split(text, "\n") {
		if strings.HasPrefix(l, "```") && (inCode == "" || l == inCode) {
			if inCode == "" {
				inCode = l
			} else {
				inCode = ""
			}
			continue
		}
		if inCode != "" {
			continue
		}
		outside := outsideSpans(l)
		if strings.Contains(outside, "<") || strings.Contains(outside, "](") && !strings.Contains(outside, `\](`) {
			t.Errorf("line %d has markup of a run's text: %s", i+1, l)
		}
		if !strings.HasPrefix(l, "|") {
			width = 0
			continue
		}
		if width == 0 {
			width = bars(l)
		}
		if bars(l) != width {
			t.Errorf("line %d has %d columns, want %d: %s", i+1, bars(l), width, l)
		}
	}
	for _, c := range []string{"\x00", "\x1b", "\u202e"} {
		if strings.Contains(text, c) {
			t.Errorf("the Markdown has %q", c)
		}
	}
}

// outsideSpans is a line of Markdown without its code spans (CommonMark, section 6.1): text
// between runs of equally many ticks, of which one after a backslash begins none.
func outsideSpans(l string) string {
	run := func(i int) int {
		n := 0
		for i+n < len(l) && l[i+n] == '`' {
			n++
		}
		return n
	}
	var out strings.Builder
	for i := 0; i < len(l); {
		if l[i] == '\\' && i+1 < len(l) {
			out.WriteString(l[i : i+2])
			i += 2
			continue
		}
		n := run(i)
		if n == 0 {
			out.WriteByte(l[i])
			i++
			continue
		}
		end := -1
		for j := i + n; j < len(l); j += max(1, run(j)) {
			if run(j) == n {
				end = j + n
				break
			}
		}
		if end < 0 {
			out.WriteString(l[i : i+n])
			end = i + n
		}
		i = end
	}
	return out.String()
}

// TestOnly: a report of some policies and budgets has no other, and the full cache stays at
// every budget.
func TestOnly(t *testing.T) {
	b, err := eviction.ParseBudget("16")
	if err != nil {
		t.Fatal(err)
	}
	whole := stored()
	r := build(t, Options{Policies: []string{"full", "snapkv", "judgeq/mine"}, Budgets: []eviction.Budget{b}, Samples: 1}, whole)
	seen := make(map[string]bool)
	for _, s := range r.Sections {
		for _, row := range slices.Concat(s.rows, s.groups) {
			seen[row.Label()+" "+row.Budget.String()] = true
		}
		for _, k := range s.Kept {
			for _, c := range k.Data.Cells {
				seen[c.Policy+" "+c.Budget] = true
			}
		}
	}
	for _, want := range []string{"full 0", "snapkv 16", "judgeq/mine 16"} {
		if !seen[want] {
			t.Errorf("%s is missing among %v", want, seen)
		}
	}
	for name := range seen {
		if policy, budget, _ := strings.Cut(name, " "); !strings.HasPrefix(policy, "full") && !strings.HasPrefix(policy, "snapkv") && !strings.HasPrefix(policy, "judgeq") || strings.Contains(budget, "32") {
			t.Errorf("%s was not asked for", name)
		}
	}
	if other := build(t, Options{Samples: 1}, whole); !strings.Contains(markdownOf(t, other), "oracle") {
		t.Error("a report has changed the run that it is of")
	}
	if _, err := New([]*runs.Stored{stored()}, Options{Policies: []string{"snapkv", "tovva"}}); err == nil || !strings.Contains(err.Error(), "no policy tovva") {
		t.Errorf("an unknown policy: error %v", err)
	}
}
