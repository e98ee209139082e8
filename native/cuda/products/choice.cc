#include "cuda/products/choice.h"

#include <sstream>

namespace braid::cuda {

std::string MatmulChosen::text() const {
  std::ostringstream text;
  text << "few rows " << few << "\nsteps apart " << apart << "\n";
  for (const MatmulChoice& choice : choices) {
    text << "algorithm " << choice.alignment << " " << choice.workspaceBytes;
    for (const std::uint32_t attribute : choice.attributes) text << " " << attribute;
    text << "\n";
  }
  return text.str();
}

bool MatmulChosen::parse(const std::string& text) {
  std::istringstream lines(text);
  std::string word, second;
  if (!(lines >> word >> second >> few >> word >> second >> apart)) return false;
  while (lines >> word && word == "algorithm") {
    MatmulChoice choice;
    lines >> choice.alignment >> choice.workspaceBytes;
    for (std::uint32_t& attribute : choice.attributes) lines >> attribute;
    if (!lines) return false;
    choices.push_back(choice);
  }
  return true;
}

}  // namespace braid::cuda
