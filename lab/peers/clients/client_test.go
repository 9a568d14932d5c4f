// Package clients holds what lab/peers/check_clients.sh asks a running server by official clients.
package clients

import (
	"os"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// client is OpenAI's for the server that the script has started.
func client(t *testing.T) (c openai.Client, model string, tools bool) {
	t.Helper()
	url := os.Getenv("GLIMPSE_CLIENTS_URL")
	if url == "" {
		t.Skip("GLIMPSE_CLIENTS_URL names no server: lab/peers/check_clients.sh starts one")
	}
	c = openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey(os.Getenv("GLIMPSE_CLIENTS_KEY")), option.WithMaxRetries(0))
	return c, os.Getenv("GLIMPSE_CLIENTS_MODEL"), os.Getenv("GLIMPSE_CLIENTS_TOOLS") != ""
}

const question = "What is the capital of France?"

// TestChat: an answer, streamed and not, is the same, and says what it took.
func TestChat(t *testing.T) {
	c, model, _ := client(t)
	p := openai.ChatCompletionNewParams{
		Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)}, MaxTokens: openai.Int(24), Temperature: openai.Float(0),
	}
	whole, err := c.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	stream, sum := c.Chat.Completions.NewStreaming(t.Context(), p), openai.ChatCompletionAccumulator{}
	for stream.Next() {
		sum.AddChunk(stream.Current())
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if got, want := sum.Choices[0].Message.Content, whole.Choices[0].Message.Content; got != want || got == "" {
		t.Errorf("a stream says %q, want %q", got, want)
	}
	if sum.Usage.TotalTokens != whole.Usage.TotalTokens {
		t.Errorf("a stream took %d tokens, want %d", sum.Usage.TotalTokens, whole.Usage.TotalTokens)
	}
}

// TestCompletionsEcho: log probabilities of a prompt, as OpenAI's legacy API gave them.
func TestCompletionsEcho(t *testing.T) {
	c, model, _ := client(t)
	got, err := c.Completions.New(t.Context(), openai.CompletionNewParams{
		Model: openai.CompletionNewParamsModel(model), Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"The capital of France is Paris", "One two"}},
		MaxTokens: openai.Int(0), Logprobs: openai.Int(1), Echo: openai.Bool(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Choices) != 2 || got.Choices[0].Text != "The capital of France is Paris" {
		t.Fatalf("choices %+v", got.Choices)
	}
	l := got.Choices[0].Logprobs
	last := len(l.Tokens) - 1
	if l.Tokens[last] != " Paris" || l.TokenLogprobs[last] < -5 || l.TextOffset[last] != int64(len("The capital of France is")) {
		t.Errorf("%q with %v at %d", l.Tokens[last], l.TokenLogprobs[last], l.TextOffset[last])
	}
}

// TestResponsesTools: a call and its result go back and forth, in a stream.
func TestResponsesTools(t *testing.T) {
	c, model, tools := client(t)
	if !tools {
		t.Skip("the model's template knows no tools")
	}
	weather := responses.ToolUnionParam{OfFunction: &responses.FunctionToolParam{
		Name: "get_weather", Description: openai.String("The weather of a city."), Strict: openai.Bool(true),
		Parameters: map[string]any{
			"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}, "additionalProperties": false,
		},
	}}
	input := responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage("What is the weather in Paris?", responses.EasyInputMessageRoleUser)}
	p := responses.ResponseNewParams{
		Model: model, Input: responses.ResponseNewParamsInputUnion{OfInputItemList: input}, Tools: []responses.ToolUnionParam{weather}, MaxOutputTokens: openai.Int(96),
		ToolChoice: responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: openai.Opt(responses.ToolChoiceOptionsRequired)}, Temperature: openai.Float(0),
	}
	stream := c.Responses.NewStreaming(t.Context(), p)
	arguments, next := "", int64(0)
	var done responses.Response
	for stream.Next() {
		e := stream.Current()
		if e.SequenceNumber != next {
			t.Errorf("event %s has number %d, want %d", e.Type, e.SequenceNumber, next)
		}
		next++
		switch e.Type {
		case "response.function_call_arguments.delta":
			arguments += e.Delta
		case "response.completed":
			done = e.Response
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if len(done.Output) == 0 || done.Output[0].Type != "function_call" || done.Output[0].Arguments.OfString != arguments || !strings.Contains(arguments, "city") || done.Usage.OutputTokens == 0 {
		t.Fatalf("output %+v of arguments %q", done.Output, arguments)
	}
	call := done.Output[0].AsFunctionCall()
	input = append(input, responses.ResponseInputItemParamOfFunctionCall(call.Arguments, call.CallID, call.Name))
	input = append(input, responses.ResponseInputItemParamOfFunctionCallOutput(call.CallID, `{"weather": "sunny", "celsius": 21}`))
	p.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: input}
	p.ToolChoice = responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: openai.Opt(responses.ToolChoiceOptionsNone)}
	after, err := c.Responses.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(after.OutputText(), "21") && !strings.Contains(strings.ToLower(after.OutputText()), "sunny") {
		t.Errorf("the answer does not know of the result: %q", after.OutputText())
	}
}
