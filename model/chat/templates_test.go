package chat

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNamedTemplates: a named template writes what llama.cpp writes under the name. The conversation and the texts are those of its
// tests/test-chat-template.cpp.
func TestNamedTemplates(t *testing.T) {
	const system, hello, hi, who, am, another = "You are a helpful assistant", "Hello", "Hi there", "Who are you", "   I am an assistant   ", "Another question"
	conversation := []Message{{Role: "system", Content: system}, {Role: "user", Content: hello}, {Role: "assistant", Content: hi}, {Role: "user", Content: who}, {Role: "assistant", Content: am}, {Role: "user", Content: another}}
	want := map[string]string{
		"chatml":            "<|im_start|>system\nYou are a helpful assistant<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi there<|im_end|>\n<|im_start|>user\nWho are you<|im_end|>\n<|im_start|>assistant\n   I am an assistant   <|im_end|>\n<|im_start|>user\nAnother question<|im_end|>\n<|im_start|>assistant\n",
		"chatglm4":          "[gMASK]<sop><|system|>\nYou are a helpful assistant<|user|>\nHello<|assistant|>\nHi there<|user|>\nWho are you<|assistant|>\n   I am an assistant   <|user|>\nAnother question<|assistant|>\n",
		"command-r":         "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>You are a helpful assistant<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hello<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Hi there<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Who are you<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>I am an assistant<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>Another question<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
		"deepseek":          "You are a helpful assistant### Instruction:\nHello\n### Response:\nHi there\n<|EOT|>\n### Instruction:\nWho are you\n### Response:\n   I am an assistant   \n<|EOT|>\n### Instruction:\nAnother question\n### Response:\n",
		"deepseek2":         "You are a helpful assistant\n\nUser: Hello\n\nAssistant: Hi there<｜end▁of▁sentence｜>User: Who are you\n\nAssistant:    I am an assistant   <｜end▁of▁sentence｜>User: Another question\n\nAssistant:",
		"deepseek3":         "You are a helpful assistant\n\n<｜User｜>Hello<｜Assistant｜>Hi there<｜end▁of▁sentence｜><｜User｜>Who are you<｜Assistant｜>   I am an assistant   <｜end▁of▁sentence｜><｜User｜>Another question<｜Assistant｜>",
		"falcon3":           "<|system|>\nYou are a helpful assistant\n<|user|>\nHello\n<|assistant|>\nHi there\n<|user|>\nWho are you\n<|assistant|>\n   I am an assistant   \n<|user|>\nAnother question\n<|assistant|>\n",
		"gemma":             "<start_of_turn>user\nYou are a helpful assistant\n\nHello<end_of_turn>\n<start_of_turn>model\nHi there<end_of_turn>\n<start_of_turn>user\nWho are you<end_of_turn>\n<start_of_turn>model\nI am an assistant<end_of_turn>\n<start_of_turn>user\nAnother question<end_of_turn>\n<start_of_turn>model\n",
		"granite":           "<|start_of_role|>system<|end_of_role|>You are a helpful assistant<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Hello<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>Hi there<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Who are you<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>   I am an assistant   <|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Another question<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
		"llama2":            "[INST] You are a helpful assistant\nHello [/INST]Hi there</s>[INST] Who are you [/INST]   I am an assistant   </s>[INST] Another question [/INST]",
		"llama2-sys":        "[INST] <<SYS>>\nYou are a helpful assistant\n<</SYS>>\n\nHello [/INST]Hi there</s>[INST] Who are you [/INST]   I am an assistant   </s>[INST] Another question [/INST]",
		"llama2-sys-bos":    "[INST] <<SYS>>\nYou are a helpful assistant\n<</SYS>>\n\nHello [/INST]Hi there</s><s>[INST] Who are you [/INST]   I am an assistant   </s><s>[INST] Another question [/INST]",
		"llama2-sys-strip":  "[INST] <<SYS>>\nYou are a helpful assistant\n<</SYS>>\n\nHello [/INST]Hi there</s>[INST] Who are you [/INST]I am an assistant</s>[INST] Another question [/INST]",
		"llama3":            "<|start_header_id|>system<|end_header_id|>\n\nYou are a helpful assistant<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHi there<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWho are you<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nI am an assistant<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nAnother question<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
		"mistral-v1":        " [INST] You are a helpful assistant\n\nHello [/INST] Hi there</s> [INST] Who are you [/INST]    I am an assistant   </s> [INST] Another question [/INST]",
		"mistral-v3":        "[INST] You are a helpful assistant\n\nHello[/INST] Hi there</s>[INST] Who are you[/INST] I am an assistant</s>[INST] Another question[/INST]",
		"mistral-v3-tekken": "[INST]You are a helpful assistant\n\nHello[/INST]Hi there</s>[INST]Who are you[/INST]   I am an assistant   </s>[INST]Another question[/INST]",
		"mistral-v7":        "[SYSTEM_PROMPT] You are a helpful assistant[/SYSTEM_PROMPT][INST] Hello[/INST] Hi there</s>[INST] Who are you[/INST]    I am an assistant   </s>[INST] Another question[/INST]",
		"mistral-v7-tekken": "[SYSTEM_PROMPT]You are a helpful assistant[/SYSTEM_PROMPT][INST]Hello[/INST]Hi there</s>[INST]Who are you[/INST]   I am an assistant   </s>[INST]Another question[/INST]",
		"openchat":          "You are a helpful assistant<|end_of_turn|>GPT4 Correct User: Hello<|end_of_turn|>GPT4 Correct Assistant: Hi there<|end_of_turn|>GPT4 Correct User: Who are you<|end_of_turn|>GPT4 Correct Assistant:    I am an assistant   <|end_of_turn|>GPT4 Correct User: Another question<|end_of_turn|>GPT4 Correct Assistant:",
		"phi3":              "<|system|>\nYou are a helpful assistant<|end|>\n<|user|>\nHello<|end|>\n<|assistant|>\nHi there<|end|>\n<|user|>\nWho are you<|end|>\n<|assistant|>\n   I am an assistant   <|end|>\n<|user|>\nAnother question<|end|>\n<|assistant|>\n",
		"phi4":              "<|im_start|>system<|im_sep|>You are a helpful assistant<|im_end|><|im_start|>user<|im_sep|>Hello<|im_end|><|im_start|>assistant<|im_sep|>Hi there<|im_end|><|im_start|>user<|im_sep|>Who are you<|im_end|><|im_start|>assistant<|im_sep|>   I am an assistant   <|im_end|><|im_start|>user<|im_sep|>Another question<|im_end|><|im_start|>assistant<|im_sep|>",
		"vicuna":            "You are a helpful assistant\n\nUSER: Hello\nASSISTANT: Hi there</s>\nUSER: Who are you\nASSISTANT:    I am an assistant   </s>\nUSER: Another question\nASSISTANT:",
		"vicuna-orca":       "SYSTEM: You are a helpful assistant\nUSER: Hello\nASSISTANT: Hi there</s>\nUSER: Who are you\nASSISTANT:    I am an assistant   </s>\nUSER: Another question\nASSISTANT:",
		"zephyr":            "<|system|>\nYou are a helpful assistant<|endoftext|>\n<|user|>\nHello<|endoftext|>\n<|assistant|>\nHi there<|endoftext|>\n<|user|>\nWho are you<|endoftext|>\n<|assistant|>\n   I am an assistant   <|endoftext|>\n<|user|>\nAnother question<|endoftext|>\n<|assistant|>\n",
	}
	for name, source := range Templates.All() {
		t.Run(name, func(t *testing.T) {
			template, err := Parse(source)
			if err != nil {
				t.Fatal(err)
			}
			got, err := template.Render(context.Background(), conversation, Options{AddGenerationPrompt: true})
			if err != nil || got != want[name] {
				t.Errorf("%q (%v), want\n%q", got, err, want[name])
			}
			bos, err := template.Render(context.Background(), conversation[1:2], Options{BOS: "<bos>"})
			if err != nil || strings.Count(bos, "<bos>") != 1 || !strings.HasPrefix(strings.TrimPrefix(bos, "[gMASK]<sop>"), "<bos>") {
				t.Errorf("with a first token, no header: %q (%v)", bos, err)
			}
			// What an assistant has said in calls alone has no content.
			for _, none := range []Message{{Role: "assistant", NoContent: true}, {Role: "assistant", Extra: Object{{Key: "content", Value: nil}}}} {
				if got, err := template.Render(context.Background(), []Message{conversation[1], none, conversation[3]}, Options{}); err != nil || strings.Contains(got, "None") {
					t.Errorf("without content: %q, %v", got, err)
				}
			}
		})
	}
	if got := len(Templates.Names()); got != len(want) {
		t.Errorf("%d templates, want %d", got, len(want))
	}
	document, err := os.ReadFile("../../docs/models.md")
	if list := "`" + strings.Join(Templates.Names(), "`, `") + "`"; err != nil || !strings.Contains(strings.Join(strings.Fields(string(document)), " "), list) {
		t.Errorf("docs/models.md (%v) lacks the list %s", err, list)
	}
}

// TestReadSource: a template is one's name, a file or its text.
func TestReadSource(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.jinja")
	write := func(text string) string {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, c := range []struct {
		name, spec string
		want       Source
		err        string
	}{
		{"none", "", Source{}, ""},
		{"name", "gemma", Source{Text: Templates.Names()[0], Named: true, From: "gemma"}, ""},
		{"file", write("{{ messages }}"), Source{Text: "{{ messages }}", From: file}, ""},
		{"text", "{% for m in messages %}{% endfor %}", Source{Text: "{% for m in messages %}{% endfor %}", From: "the command line"}, ""},
		{"misspelt", "chatlm", Source{}, `chat template: no file, and unknown template "chatlm", want one of: chatglm4, chatml, `},
		{"misspelt, meant", "chatlm", Source{}, `did you mean "chatml"?`},
		{"no file", "no/such.jinja", Source{}, `no file, and unknown template "no/such.jinja", want one of: chatglm4, chatml, `},
		{"folder", filepath.Dir(file), Source{}, "a folder, want a regular file"},
		{"broken text", "{% for %}", Source{}, "the command line: chat template: parse: "},
	} {
		got, err := ReadSource(c.spec)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %q", c.name, err, c.err)
			}
			continue
		}
		if c.want.Named {
			c.want.Text, _ = Templates.Lookup(c.spec)
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
	for text, want := range map[string]string{"{% for %}": file + ": chat template: parse: ", "<!DOCTYPE html>": "an HTML page"} {
		if _, err := ReadSource(write(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("file %q: error %v, want %q", text, err, want)
		}
	}
}
