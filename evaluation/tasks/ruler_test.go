package tasks

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// libraries writes small files as SQuAD's and HotpotQA's authors publish theirs.
func libraries(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	type object = map[string]any
	var articles []object
	var hotpot []object
	for a := range 6 {
		var paragraphs []object
		var context [][2]any
		for p := range 12 {
			text := strings.Repeat(fmt.Sprintf("Paragraph %d of article %d tells of the river and the town near it. ", p, a), 3+p%4)
			paragraphs = append(paragraphs, object{"context": text, "qas": []object{
				{"question": fmt.Sprintf("Question %d-%d?", a, p), "is_impossible": false, "answers": []object{{"text": fmt.Sprintf("article %d", a)}, {"text": "nobody says this"}}},
				{"question": "Impossible?", "is_impossible": true, "answers": []object{}},
			}})
			if p < 10 {
				context = append(context, [2]any{fmt.Sprintf("Title %d-%d", a, p), []string{"First sentence.", fmt.Sprintf(" Second one about %d.", p)}})
			}
		}
		articles = append(articles, object{"title": "x", "paragraphs": paragraphs})
		hotpot = append(hotpot, object{"question": fmt.Sprintf("Hotpot %d?", a), "answer": "yes", "context": context, "type": "bridge"})
	}
	for name, v := range map[string]any{"squad.json": object{"version": "v2.0", "data": articles}, "hotpotqa.json": hotpot} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(folder, name), string(data))
	}
	return folder
}

// TestRULERLengths: prompts of all 13 tasks have exactly the tokens that are asked for, with
// every tokenizer and chat template, and each is another.
func TestRULERLengths(t *testing.T) {
	data := libraries(t)
	for name, m := range textModels(t) {
		lengths := []int{1024, 4096}
		if name == "bytes" {
			lengths = []int{12000}
		}
		for _, task := range rulerTasks {
			t.Run(name+"/"+task.name, func(t *testing.T) {
				s := setting(t, m, "ruler", "lengths="+strings.Trim(strings.ReplaceAll(fmt.Sprint(lengths), " ", ","), "[]"))
				s.Data = data
				samples, all := makeAll(t, "ruler", task.name, s)
				if len(all) != 2*len(lengths) || samples.Count != len(all) {
					t.Fatalf("%d samples, Count %d", len(all), samples.Count)
				}
				seen := make(map[string]bool)
				for i, a := range all {
					if a.err != nil {
						t.Fatalf("%s: %v", a.id, a.err)
					}
					ids, text := promptText(t, m, a.sample)
					if len(ids) != lengths[i%len(lengths)] {
						t.Errorf("%s: %d tokens, want %d", a.id, len(ids), lengths[i%len(lengths)])
					}
					if seen[text] {
						t.Errorf("%s: the same prompt again", a.id)
					}
					seen[text] = true
				}
			})
		}
	}
}

// TestRULERTasks: what each task asks can be found in its prompt by its rule, as RULER
// describes it, and answers are scored so.
func TestRULERTasks(t *testing.T) {
	m := byteModel(t)
	words := func(text, from, to string) []string {
		_, rest, ok := strings.Cut(text, from)
		part, _, ok2 := strings.Cut(rest, to)
		if !ok || !ok2 {
			t.Fatalf("no text between %q and %q", from, to)
		}
		return strings.Fields(part)
	}
	// magic are the values of each key.
	magic := func(text string) map[string][]string {
		out := make(map[string][]string)
		for _, f := range regexp.MustCompile(`One of the special magic (?:numbers|words|uuids) for (\S+) is: (\S+)\.`).FindAllStringSubmatch(text, -1) {
			out[f[1]] = append(out[f[1]], f[2])
		}
		return out
	}
	needles := func(keys, asked, values int, others bool) func(string) []string {
		return func(text string) (out []string) {
			all := magic(text)
			if len(all) != keys && !others || others && len(all) < 20 {
				t.Errorf("%d keys", len(all))
			}
			query := regexp.MustCompile(`What (?:is|are all) the special magic \w+ for (.*) mentioned in the provided text\? The special magic \w+ for (.*) mentioned in the provided text (?:is|are)$`).FindStringSubmatch(text)
			if query == nil || query[1] != query[2] {
				t.Fatalf("question %q", text[len(text)-300:])
			}
			list := strings.Split(strings.ReplaceAll(query[1], ", and ", ", "), ", ")
			if len(list) != asked {
				t.Errorf("%d keys are asked for, want %d", len(list), asked)
			}
			for _, key := range list {
				if len(all[key]) != values {
					t.Errorf("%d values of %s, want %d", len(all[key]), key, values)
				}
				out = append(out, all[key]...)
			}
			return out
		}
	}
	top := func(list []string, n int) []string {
		count := make(map[string]int)
		for _, w := range list {
			count[w]++
		}
		names := slices.SortedFunc(maps.Keys(count), func(a, b string) int { return count[b] - count[a] })
		if count[names[n-1]] <= count[names[n]] {
			t.Errorf("rank %d occurs %d times, the next %d times", n, count[names[n-1]], count[names[n]])
		}
		return names[:n]
	}
	for _, c := range []struct {
		task  string
		find  func(text string) []string
		parts bool // one of the answers is enough
	}{
		{"niah_single_1", needles(1, 1, 1, false), false}, {"niah_single_2", needles(1, 1, 1, false), false}, {"niah_single_3", needles(1, 1, 1, false), false},
		{"niah_multikey_1", needles(4, 1, 1, false), false}, {"niah_multikey_2", needles(0, 1, 1, true), false}, {"niah_multikey_3", needles(0, 1, 1, true), false},
		{"niah_multivalue", needles(1, 1, 4, false), false}, {"niah_multiquery", needles(4, 4, 1, false), false},
		{"vt", func(text string) []string {
			text = text[strings.LastIndex(text, "Memorize and track"):]
			value := regexp.MustCompile(`assigned the value (\d+) in the text above`).FindStringSubmatch(text)[1]
			var chain []string
			for _, s := range regexp.MustCompile(`VAR (\w+) = (?:VAR )?(\w+)`).FindAllStringSubmatch(text, -1) {
				if s[2] == value || slices.Contains(chain, s[2]) {
					chain = append(chain, s[1])
				}
			}
			if len(chain) != 5 {
				t.Errorf("a chain of %d variables, want 5", len(chain))
			}
			return chain
		}, false},
		{"cwe", func(text string) []string {
			text = text[strings.LastIndex(text, "Below is a numbered list"):]
			list := words(text, "most often.", "Question:")
			var out []string
			for i := 1; i < len(list); i += 2 {
				if want := fmt.Sprintf("%d.", i/2+1); list[i-1] != want {
					t.Fatalf("number %s, want %s", list[i-1], want)
				}
				out = append(out, list[i])
			}
			return top(out, 10)
		}, false},
		{"fwe", func(text string) []string {
			return top(slices.DeleteFunc(words(text, "coded words.", "Question:"), func(w string) bool { return strings.Trim(w, ".") == "" }), 3)
		}, false},
		{"qa_1", func(text string) []string {
			q := regexp.MustCompile(`Question: Question (\d)-(\d+)\?`).FindStringSubmatch(text)
			if !strings.Contains(text, "Paragraph "+q[2]+" of article "+q[1]+" ") {
				t.Error("the document that the answer stands in is missing")
			}
			return []string{"article " + q[1]}
		}, true},
		{"qa_2", func(text string) []string {
			q := regexp.MustCompile(`Question: Hotpot (\d)\?`).FindStringSubmatch(text)[1]
			for p := range 10 {
				if !strings.Contains(text, fmt.Sprintf("Title %s-%d\nFirst sentence. Second one about %d.", q, p, p)) {
					t.Errorf("document %d of the question is missing", p)
				}
			}
			return []string{"yes"}
		}, true},
	} {
		t.Run(c.task, func(t *testing.T) {
			s := setting(t, m, "ruler", "lengths=12000")
			s.Data = libraries(t)
			samples, all := makeAll(t, "ruler", c.task, s)
			for _, a := range all {
				if a.err != nil {
					t.Fatal(a.err)
				}
				_, text := promptText(t, m, a.sample)
				want := c.find(text)
				rate := func(answer string) float64 { return scoreOf(t, a.sample, samples.Metric, answer) }
				if v := rate("Well: " + strings.ToUpper(strings.Join(want, ", "))); v != 1 {
					t.Errorf("%s: the right answer %q is rated %v", a.id, want, v)
				}
				part := 1 / float64(len(want))
				if v := rate(want[0]); v != part {
					t.Errorf("%s: a part of the right answer is rated %v, want %v", a.id, v, part)
				}
				if v := rate("no"); v != 0 {
					t.Errorf("%s: a wrong answer is rated %v", a.id, v)
				}
				if c.parts && rate("nobody says this") != map[string]float64{"qa_1": 1}[c.task] {
					t.Error("another accepted answer")
				}
			}
			again := setting(t, m, "ruler", "lengths=12000")
			again.Data = s.Data
			_, same := makeAll(t, "ruler", c.task, again)
			again.Seed = 2
			_, other := makeAll(t, "ruler", c.task, again)
			for i := range all {
				a, _ := promptText(t, m, all[i].sample)
				b, _ := promptText(t, m, same[i].sample)
				d, _ := promptText(t, m, other[i].sample)
				if !slices.Equal(a, b) || slices.Equal(a, d) {
					t.Errorf("%s: equal with the same seed %v, with another %v", all[i].id, slices.Equal(a, b), slices.Equal(a, d))
				}
			}
		})
	}
}

// TestRULERFiles: ready prompts are taken as they are, rows of other tasks are passed over,
// and a bad row fails alone.
func TestRULERFiles(t *testing.T) {
	m := byteModel(t)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "vt", "validation.jsonl"), `{"index": 0, "input": "[INST] a chain [/INST] Answer:", "outputs": ["AB", "CD"], "length": 30}
{"index": 1, "input": "no outputs"}
{"index": 2, "input": "with a", "answer_prefix": " prefix", "outputs": ["AB"], "length": 30}
`)
	writeFile(t, filepath.Join(dir, "all.jsonl"), `{"context": "c ", "question": "q", "answer_prefix": " a:", "answer": ["AB"], "task": "vt", "max_new_tokens": 30}
{"context": "c ", "question": "q", "answer_prefix": " a:", "answer": ["AB"], "task": "cwe", "max_new_tokens": 30}
`)
	s := setting(t, m, "ruler")
	s.Data, s.Samples = dir, 0
	samples, all := makeAll(t, "ruler", "vt", s)
	if len(all) != 3 || samples.Metric != rulerAll {
		t.Fatalf("%d samples, metric %s", len(all), samples.Metric)
	}
	for i, want := range []string{"[INST] a chain [/INST] Answer:", "", "with a prefix"} {
		if want == "" {
			if all[i].err == nil || !strings.Contains(all[i].err.Error(), `validation.jsonl:2: field "outputs": missing`) {
				t.Errorf("error %v", all[i].err)
			}
			continue
		}
		if _, text := promptText(t, m, all[i].sample); text != want {
			t.Errorf("prompt %q, want %q", text, want)
		}
	}
	if v := scoreOf(t, all[0].sample, rulerAll, "cd and more"); v != 0.5 {
		t.Errorf("half of the answer is rated %v", v)
	}
	s.Data = filepath.Join(dir, "all.jsonl")
	_, all = makeAll(t, "ruler", "vt", s)
	if len(all) != 1 {
		t.Fatalf("%d samples of the task, want 1", len(all))
	}
	if _, text := promptText(t, m, all[0].sample); text != "c q a:" {
		t.Errorf("prompt %q", text)
	}
}

// TestRULERRefusals: what cannot be is told before anything is made.
func TestRULERRefusals(t *testing.T) {
	m := byteModel(t)
	dir := libraries(t)
	for want, c := range map[string]struct {
		task, data string
		options    []string
	}{
		"want --data with squad.json in it, or --task-option ruler.squad=FILE":     {task: "qa_1"},
		"want --data with hotpotqa.json":                                           {task: "qa_2"},
		"squad.json: json: cannot unmarshal object into Go value of type []struct": {task: "qa_2", options: []string{"hotpotqa=" + filepath.Join(dir, "squad.json")}},
		"got no questions": {task: "qa_2", options: []string{"hotpotqa=" + writeFile(t, filepath.Join(dir, "none.json"), "[]")}},
		"a document of the context: got [1], want a title": {task: "qa_2", options: []string{"hotpotqa=" + writeFile(t, filepath.Join(dir, "bad.json"), `[{"question": "q", "answer": "a", "context": [[1]]}]`)}},
		`option count: got "all", want prompt or total`:    {task: "vt", options: []string{"count=all"}},
		`option lengths: got "x"`:                          {task: "vt", options: []string{"lengths=x"}},
		"prompts of 140000 tokens, want at most 131043":    {task: "vt", options: []string{"lengths=140000"}},
		"want RULER's rows as .jsonl or .parquet":          {task: "vt", data: filepath.Join(dir, "squad.json")},
		"got 2 words, want at least 100 for a haystack":    {task: "niah_single_2", options: []string{"haystack=" + writeFile(t, filepath.Join(dir, "h.txt"), "two words")}},
	} {
		s := setting(t, m, "ruler", c.options...)
		s.Data = c.data
		openError(t, "ruler", c.task, s, want)
	}
	// Too short for the question alone: the sample fails.
	_, all := makeAll(t, "ruler", "vt", setting(t, m, "ruler", "lengths=100"))
	if len(all) != 2 || all[0].err == nil || !strings.Contains(all[0].err.Error(), "tokens around its haystack, want at most 100") {
		t.Errorf("%d samples, error %v", len(all), all[0].err)
	}
	// With count=total the answer's room is part of the length.
	_, all = makeAll(t, "ruler", "vt", setting(t, m, "ruler", "lengths=8000", "count=total"))
	if ids, _ := promptText(t, m, all[0].sample); len(ids) != 7970 {
		t.Errorf("%d tokens, want 7970", len(ids))
	}
}

// TestRULERDefinitions: texts, needles, answer lengths and rules are RULER's
// (lab/golden/golden_ruler.py).
func TestRULERDefinitions(t *testing.T) {
	type definition struct {
		Kind, Metric, Text string
		Tokens             int
		Args               map[string]string
	}
	data, err := os.ReadFile(filepath.Join("testdata", "ruler.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]definition
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	if len(want) != 13 || len(rulerTasks) != 13 {
		t.Fatalf("%d definitions and %d tasks, want 13", len(want), len(rulerTasks))
	}
	texts := map[string]string{
		"niah":                    strings.ReplaceAll(rulerNIAHTemplate+rulerNIAHBegin, "{values}", "{type_needle_v}"),
		"variable_tracking":       fmt.Sprintf(vtTemplate, "{context}", "{query}") + strings.Replace(strings.Replace(vtBegin, "%d", "{num_v}", 1), "%s", "{query}", 1),
		"common_words_extraction": fmt.Sprintf(cweTemplate, "{context}") + cweBegin,
		"freq_words_extraction":   fmt.Sprintf(fweTemplate, "{context}") + fweBegin,
		"qa":                      fmt.Sprintf(qaTemplate, "{context}", "{query}") + qaBegin,
	}
	for _, task := range rulerTasks {
		w := want[task.name]
		if sum := sha256.Sum256([]byte(texts[w.Kind])); hex.EncodeToString(sum[:]) != w.Text {
			t.Errorf("%s: the text is another: %q", task.name, texts[w.Kind])
		}
		if task.maxNew != w.Tokens || task.metric != w.Metric {
			t.Errorf("%s: answers of %d tokens by %s, want %d, %s", task.name, task.maxNew, task.metric, w.Tokens, w.Metric)
		}
		if w.Kind != "niah" {
			continue
		}
		if _, err := task.make(new(ruler), rand.New(rand.NewPCG(1, 2)), 1000, 0); err != nil {
			t.Fatal(err)
		}
		n := task.needles
		got := map[string]string{
			"type_haystack": []string{"repeat", "essay", "needle"}[n.haystack], "type_needle_k": n.keys.name, "type_needle_v": n.values.name,
			"num_needle_k": fmt.Sprint(n.k), "num_needle_v": fmt.Sprint(n.v), "num_needle_q": fmt.Sprint(n.q),
		}
		// RULER has at least as many keys as it asks for.
		w.Args["num_needle_k"] = max(w.Args["num_needle_k"], w.Args["num_needle_q"])
		if !maps.Equal(got, w.Args) {
			t.Errorf("%s: %v, want %v", task.name, got, w.Args)
		}
	}
}

// TestRULERHaystack: the text of --data, in the forms that it comes in, is the haystack.
func TestRULERHaystack(t *testing.T) {
	m := byteModel(t)
	text := strings.Repeat("Essays are about startups and writing. ", 40)
	for name, content := range map[string]string{"PaulGrahamEssays.json": fmt.Sprintf(`{"text": %q}`, text), "haystack.txt": text} {
		s := setting(t, m, "ruler", "lengths=3000")
		path := writeFile(t, filepath.Join(t.TempDir(), name), content)
		for _, s.Data = range []string{filepath.Dir(path), path} {
			if s.Data == path && filepath.Ext(path) == ".json" {
				s.Data, s.Options["haystack"] = "", path
			}
			_, all := makeAll(t, "ruler", "niah_single_2", s)
			if all[0].err != nil {
				t.Fatal(all[0].err)
			}
			if _, prompt := promptText(t, m, all[0].sample); strings.Count(prompt, "Essays are about startups and writing.") < 50 {
				t.Errorf("%s: prompt %q", name, prompt[:300])
			}
		}
	}
}
