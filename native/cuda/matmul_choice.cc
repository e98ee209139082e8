#include "cuda/matmul_choice.h"

#include <sstream>

namespace braid::cuda {

std::string MatmulChosen::text() const {
  std::ostringstream text;
  text << "few rows " << few << "\nrelu apart " << apart << "\n";
  for (const MatmulChoice& choice : choices) {
    text << "algorithm " << choice.alignment << " " << choice.workspaceBytes << std::hex;
    for (const std::uint64_t word : choice.algorithm.data) text << " " << word;
    text << std::dec << "\n";
  }
  return text.str();
}

bool MatmulChosen::parse(const std::string& text) {
  std::istringstream lines(text);
  std::string word, second;
  if (!(lines >> word >> second >> few >> word >> second >> apart)) return false;
  while (lines >> word && word == "algorithm") {
    MatmulChoice choice;
    lines >> choice.alignment >> choice.workspaceBytes >> std::hex;
    for (std::uint64_t& each : choice.algorithm.data) lines >> each;
    if (!(lines >> std::dec)) return false;
    choices.push_back(choice);
  }
  return true;
}

}  // namespace braid::cuda
