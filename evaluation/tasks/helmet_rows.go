package tasks

import (
	"fmt"
	"regexp"
	"strings"

	"glimpse/datasets"
)

// answerAfter returns the rest of the line after a prefix in any case, or the first line,
// without blanks and another such prefix (utils.py, parse_output).
func answerAfter(text, prefix string) string {
	line, _, _ := strings.Cut(text, "\n")
	if match := regexp.MustCompile("(?i:" + regexp.QuoteMeta(prefix) + ")([^\n]*)").FindStringSubmatch(text); match != nil {
		line = match[1]
	}
	line = strings.TrimSpace(line)
	if len(line) >= len(prefix) && strings.EqualFold(line[:len(prefix)], prefix) {
		line = line[len(prefix):]
	}
	return strings.TrimSpace(line)
}

// readQuestion reads rows as HELMET makes them, and InfiniteBench's.
func readQuestion(_ *helmet, row datasets.Row) (map[string]string, error) {
	question := "question"
	if !row.Has(question) && row.Has("input") {
		question = "input"
	}
	r := reading{Row: row}
	values := r.texts("context", question)
	values["question"], values["demos"] = values[question], ""
	for _, field := range []string{"demo", "demos"} {
		if row.Has(field) {
			values["demos"] = r.readText(field)
		}
	}
	return values, r.err
}

// readKeys reads a row of the JSON recall task, whose examples are pairs (load_json_kv).
func readKeys(h *helmet, row datasets.Row) (map[string]string, error) {
	r := reading{Row: row}
	values := r.texts("context", "question")
	values["demos"] = ""
	if h.shots == 0 {
		return values, r.err
	}
	var pairs [][2]string
	if r.decode("demos", "a list of pairs of key and value", &pairs); r.err != nil {
		return nil, r.err
	}
	if len(pairs) < h.shots {
		return nil, fmt.Errorf("field \"demos\": %d pairs, want at least %d", len(pairs), h.shots)
	}
	for _, p := range pairs[:h.shots] {
		values["demos"] += fmt.Sprintf("Key: %s\nCorresponding value: %s\n\n", p[0], p[1])
	}
	return values, nil
}

// readDocuments reads a question with its documents (load_qa). HELMET draws the worked
// examples with numpy's generator, this with its own, from the seed and the question.
func readDocuments(h *helmet, row datasets.Row) (map[string]string, error) {
	r := reading{Row: row}
	question := r.readText("question")
	values := map[string]string{"question": question, "demos": "", "context": r.documents()}
	if r.err != nil || h.shots == 0 {
		return values, r.err
	}
	left := h.shots
	for _, i := range drawn(h.setting.Seed, question, len(h.train), len(h.train)) {
		example := reading{Row: h.train[i]}
		asked := example.readText("question") // which it has
		if asked == question {
			continue
		}
		answers := example.readTexts("answers")
		if example.err == nil && len(answers) == 0 {
			example.err = fmt.Errorf("field \"answers\": none")
		}
		context := example.documents()
		if example.err != nil {
			return nil, example.Fail(example.err)
		}
		values["demos"] += fmt.Sprintf("%s\n\nQuestion: %s\nAnswer: %s\n\n", context, asked, answers[0])
		if left--; left == 0 {
			break
		}
	}
	return values, nil
}

func (r *reading) documents() string {
	var docs []struct{ Title, Text string }
	r.decode("ctxs", "a list of documents with title and text", &docs)
	out := make([]string, len(docs))
	for i, d := range docs {
		out[i] = fmt.Sprintf("Document (Title: %s): %s", d.Title, d.Text)
	}
	return strings.Join(out, "\n\n")
}
