package datasets

// The fields of data sets as their hubs have them.
func init() {
	for _, p := range []struct {
		name, doc string
		fields    Fields
	}{
		{"boolq", "BoolQ: passage, question, answer (true or false)", Fields{Context: "passage", Prompt: "question", Answer: "answer"}},
		{"chatqa2", "ChatQA2 long_sft: document beside messages, answers", Fields{Context: "document", Messages: "messages", Answer: "answers"}},
		{"cnn_dailymail", "CNN/DailyMail: article, highlights", Fields{ID: "id", Prompt: "{article}\n\nSummarize the article above.", Answer: "highlights"}},
		{"dolly", "Dolly 15k: instruction, context, response", Fields{Context: "context", Prompt: "instruction", Answer: "response"}},
		{"drop", "DROP: passage, question, answers_spans", Fields{ID: "query_id", Context: "passage", Prompt: "question", Answer: "answers_spans.spans"}},
		{"gsm8k", "GSM8K: question, answer with its working", Fields{Prompt: "question", Answer: "answer"}},
		{"infinitebench", "InfiniteBench: context, input, answer", Fields{ID: "id", Context: "context", Prompt: "input", Answer: "answer"}},
		{"math", "MATH-500, AIME: problem, answer", Fields{Prompt: "problem", Answer: "answer"}},
		{"narrativeqa", "NarrativeQA: question and answers about the summary of a book", Fields{Context: "document.summary.text", Prompt: "question.text", Answer: "answers"}},
		{"qa", "long_sft and others: question, answer", Fields{Prompt: "question", Answer: "answer"}},
		{"ruler", "RULER: input, outputs", Fields{Text: "input", Answer: "outputs"}},
		{"summary", "XSum, Multi-News: document, summary", Fields{Prompt: "{document}\n\nSummarize the text above.", Answer: "summary"}},
		{"the-stack", "The Stack: content, a file of source code", Fields{Text: "content"}},
		{"triviaqa", "TriviaQA: question, answer with aliases", Fields{ID: "question_id", Prompt: "question", Answer: "answer.aliases"}},
		{"truthfulqa", "TruthfulQA generation: question, correct_answers, incorrect_answers", Fields{Prompt: "question", Answer: "correct_answers", MetricOptions: map[string]string{"wrong": "incorrect_answers"}}},
		{"ultrachat", "UltraChat 200k: messages", Fields{ID: "prompt_id", Messages: "messages"}},
	} {
		FieldPresets.Add(p.name, FieldPreset{Doc: p.doc, Fields: p.fields})
	}
	FieldPresets.Add("squad", FieldPreset{
		Doc:    "SQuAD 1.1, 2.0: context, question, answers (none: unanswerable)",
		Fields: Fields{ID: "id", Context: "context", Prompt: "question", Answer: "answers.text"}, Unanswerable: true,
	})
}
